import dataclasses, enum, typing
@dataclasses.dataclass(order=True)
class Item:
    name: str
    price: float = 0.0
    tags: typing.List[str] = dataclasses.field(default_factory=list)
class Color(enum.Enum):
    RED = 1
print(Item("a") < Item("b", 2), Item("a"), Color.RED, typing.get_type_hints(Item))
