"""The error of an object that cannot be understood."""


class ModelError(ValueError):
    """A field has a value that cannot work. The message names the field, the value and the limit."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
