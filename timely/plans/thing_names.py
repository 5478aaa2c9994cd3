"""Names of things, as plans write them and robots know them."""


def plain_thing_name(value: object) -> str:
    """A name without the position that TypeFly may write behind it (``chair[0.6]``)."""
    return str(value).partition("[")[0].strip().lower()
