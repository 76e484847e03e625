from trainer.envs.rebinding import Rebinding

LIMIT = 3


def announced(method):
    def inner(self):
        return f"announced {method(self)}"

    return inner


class Base:
    def greet(self):
        return "base"


class Source(Base):
    def greet(self):
        return f"{super().greet()} {LIMIT}"

    @announced
    def decorated(self):
        return LIMIT

    @property
    def doubled(self):
        return 2 * LIMIT

    @staticmethod
    def squared():
        return LIMIT**2

    def through_its_own_name(self):
        return Source.squared()

    def with_defaults(self, a=1, *, b=2):
        return a + b + LIMIT


class Between:
    def greet(self):
        return "between"


def rebound(**names):
    rebinding = Rebinding(Source, names)
    made = type("Made", (Between, Source), rebinding.methods(leave=lambda name: name.startswith("__")))
    rebinding.bind(made)
    return made


def test_copies_find_other_things_under_the_names():
    made = rebound(LIMIT=10)()
    assert made.doubled == 20
    assert made.squared() == 100
    assert made.with_defaults() == 13
    assert made.with_defaults(0, b=0) == 10


def test_what_a_decorator_wraps_is_copied_too():
    assert rebound(LIMIT=10)().decorated() == "announced 10"


def test_the_class_own_name_means_the_copy():
    assert rebound(LIMIT=10)().through_its_own_name() == 100


def test_super_is_what_the_new_class_has():
    assert rebound(LIMIT=10)().greet() == "between 10"


def test_the_source_stays_as_it_is():
    rebound(LIMIT=10)
    source = Source()
    assert source.greet() == "base 3"
    assert source.decorated() == "announced 3"
    assert source.doubled == 6
    assert LIMIT == 3


def test_methods_can_be_left_out():
    assert list(Rebinding(Source, {}).methods(leave=lambda name: name != "squared")) == ["squared"]
