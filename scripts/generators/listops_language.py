"""The language of ListOps: operators, their values, and LRA's way of writing an expression down.

An expression is a digit or an operator with two or more arguments. It is written as left-nested binary applications,
each "( left right )", with the closing token as the last argument: [MIN 8 2] is `( ( ( [MIN 8 ) 2 ) ] )`. Its length
counts operators, closing tokens and digits, not parentheses.
"""

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
DIGITS = "0123456789"


def apply(operator: str, values: list[int]) -> int:
    """The value of an operator on its arguments: an even count's median is averaged and cut; SM is the sum mod 10."""
    if operator == "[MIN":
        return min(values)
    if operator == "[MAX":
        return max(values)
    if operator == "[SM":
        return sum(values) % 10
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def tokens(source: str) -> list[str]:
    """The tokens of a written expression without its parentheses."""
    return [token for token in source.split() if token not in ("(", ")")]


def evaluate(source: str) -> int:
    """The value of an expression, with or without parentheses.

    Raises:
        ValueError: it is not one expression: an unknown token, an operator without arguments or never closed, a
            closing token too many, or several expressions.
    """
    open_operators: list[str] = []
    values: list[list[int]] = [[]]
    for token in tokens(source):
        if token in OPERATORS:
            open_operators.append(token)
            values.append([])
        elif token == CLOSE:
            arguments = values.pop()
            if not open_operators or not arguments:
                raise ValueError("a closing token without an operator, or an operator without arguments")
            values[-1].append(apply(open_operators.pop(), arguments))
        elif len(token) == 1 and token in DIGITS:
            values[-1].append(int(token))
        else:
            raise ValueError(f"unknown token {token!r}")
    if open_operators or len(values[0]) != 1:
        raise ValueError("an operator is never closed, or there is not exactly one expression")
    return values[0][0]
