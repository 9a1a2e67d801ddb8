"""Evaluate conditions of tasks and selectors of loop items: the part of CEL that KFP writes.

    evaluate("inputs.parameter_values['n'] > 3 && !(inputs.parameter_values['s'] == 'no')", values)

https://github.com/google/cel-spec
"""

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|&&|\|\||!(?!=)|\b(?:true|false|null)\b"""
)
_PYTHON = {"&&": " and ", "||": " or ", "!": " not ", "true": "True", "false": "False"}
_NAME = re.compile(r"""inputs\.parameter_values\[(['"])(.+?)\1\]""")


def find_names(expression: str) -> set[str]:
    """Return the names of the parameters that an expression reads."""
    return {match[2] for match in _NAME.finditer(expression)}


def _equal(left: Any, right: Any) -> bool:
    """Compare values; one of unknown type, such as a loop's item, is compared with a text as text.

    KFP's compiler writes the number with which it is compared as a text.
    """
    if isinstance(left, str) != isinstance(right, str) and None not in (left, right):
        return _to_text(left) == _to_text(right)
    return bool(left == right)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _parse_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "double": float,
    "string": _to_text,
    "bool": bool,
    "parseJson": _parse_json,
}


def evaluate(expression: str, parameters: Mapping[str, Any], string_value: Any = None) -> Any:
    """Return the value of an expression; raise ValueError if it can't be evaluated.

    Args:
        parameters: values of `inputs.parameter_values`.
        string_value: value of the variable of that name, in the selector of a parameter.
    """

    def translate(match: re.Match[str]) -> str:
        return match["text"] or _PYTHON.get(match[0], "None")

    def visit(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return visit(body)
            case ast.Constant(value=value):
                return value
            case ast.Name(id="string_value"):
                return string_value
            case ast.Attribute(value=ast.Name(id="inputs"), attr="parameter_values"):
                return parameters
            case ast.Subscript(value=container, slice=key):
                return visit(container)[visit(key)]
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
                return _FUNCTIONS[name](visit(argument))
            case ast.BoolOp(op=ast.And(), values=values):
                return all(visit(value) for value in values)
            case ast.BoolOp(values=values):
                return any(visit(value) for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not visit(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -visit(operand)
            case ast.Compare(left=left, ops=[comparison], comparators=[right]):
                return _COMPARISONS[type(comparison)](visit(left), visit(right))
        raise ValueError(ast.unparse(node))

    try:
        return visit(ast.parse(_TOKEN.sub(translate, expression).strip(), mode="eval"))
    except (ArithmeticError, LookupError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"the expression {expression!r} can't be evaluated: {error!r}") from None
