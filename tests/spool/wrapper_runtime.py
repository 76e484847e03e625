"""A runtime whose image is a shell script that starts the program, as a stranger would write it."""

from pathlib import Path

from clusterkit.runtimes import ImageFormat, Runtime


class Wrapper(Runtime):
    """Starts programs through the script."""

    name, title = "wrapper", "the wrapper"
    image = ImageFormat("script", 0, b"#!", "wrapper.sh", maker="an editor", convert="write one")
    make_image = "write one"
    find = "command -v env"
    template = Path(__file__).with_name("wrapper.sh.j2")

    def add(self, mount: str) -> str:
        return ":"


RUNTIME = Wrapper()
