"""A login's questions as messages: the keeper asks, and the command that started it has the person. Pure."""

from __future__ import annotations

from clusterkit.transport.kept.messages import Message
from clusterkit.transport.questions import HostKeyQuestion, Prompt, Question


def to_message(question: Question) -> Message:
    """A question, ready to be sent."""
    return {
        "host_key": isinstance(question, HostKeyQuestion),
        "where": question.where,
        "title": question.title,
        "instructions": question.instructions,
        "prompts": [[prompt.text, prompt.echo] for prompt in question.prompts],
    }


def from_message(message: Message) -> Question:
    """What `to_message` was given."""
    kind = HostKeyQuestion if message["host_key"] else Question
    prompts = tuple(Prompt(text, echo) for text, echo in message["prompts"])
    return kind(message["where"], message["title"], message["instructions"], prompts)
