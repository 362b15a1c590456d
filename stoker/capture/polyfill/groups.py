"""Exception groups: how they are made, split by `except*`, and put together again for what is raised at its end (PEP 654)."""

from __future__ import annotations

from typing import Any


def class_of_group(cls: Any, message: Any, members: Any) -> Any:
    """The class of the group that `cls(message, members)` makes, if it makes one."""
    if not isinstance(message, str):
        raise TypeError(f"BaseExceptionGroup.__new__() argument 1 must be str, not {type(message).__name__}")
    if not hasattr(type(members), "__getitem__") or isinstance(members, dict):
        raise TypeError("second argument (exceptions) must be a sequence")
    if len(members) == 0:
        raise ValueError("second argument (exceptions) must be a non-empty sequence")
    for place, member in enumerate(members):
        if not isinstance(member, BaseException):
            raise ValueError(f"Item {place} of second argument (exceptions) is not an exception")
    plain = all(isinstance(member, Exception) for member in members)
    if cls is BaseExceptionGroup:
        return ExceptionGroup if plain else cls
    if not plain and issubclass(cls, Exception):
        where = "an ExceptionGroup" if cls is ExceptionGroup else f"'{cls.__name__}'"
        raise TypeError(f"Cannot nest BaseExceptions in {where}")
    return cls


def _matcher(wanted: Any) -> Any:
    if type(wanted) is type(_matcher):
        return wanted
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise TypeError("expected a function, exception type or tuple of exception types")
    return lambda error: isinstance(error, wanted)


def _split(error: Any, matches: Any, wants_rest: bool) -> Any:
    """What matches of an exception, and what does not: groups like it, with a part of its members."""
    if matches(error):
        return error, None
    if not isinstance(error, BaseExceptionGroup):
        return None, error
    found, left = [], []
    for member in error.exceptions:
        one, other = _split(member, matches, wants_rest)
        if one is not None:
            found.append(one)
        if other is not None:
            left.append(other)
    return _part(error, found), _part(error, left) if wants_rest else None


def _part(group: Any, members: list[Any]) -> Any:
    if not members:
        return None
    made = group.derive(members)
    if not isinstance(made, BaseExceptionGroup):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    made.__traceback__ = group.__traceback__
    made.__context__ = group.__context__
    made.__cause__ = group.__cause__
    notes: Any = getattr(group, "__notes__", None)
    if hasattr(type(notes), "__getitem__") and not isinstance(notes, dict):  # C's notion of a sequence
        made.__notes__ = list(notes)
    return made


def split(group: Any, wanted: Any) -> Any:
    return _split(group, _matcher(wanted), True)


def subgroup(group: Any, wanted: Any) -> Any:
    return _split(group, _matcher(wanted), False)[0]


def derive(group: Any, members: Any) -> Any:
    return BaseExceptionGroup(group.message, members)


def caught(error: Any, wanted: Any) -> Any:
    """What an `except*` clause leaves of an exception, and what it catches, as a group."""
    if error is None:
        return None, None
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    if any(issubclass(kind, BaseExceptionGroup) for kind in kinds):
        raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    if isinstance(error, BaseExceptionGroup):
        found, rest = (error, None) if isinstance(error, wanted) else _split(error, _matcher(wanted), True)
        return rest, found
    return (None, ExceptionGroup("", [error])) if isinstance(error, wanted) else (error, None)


def raised_at_end(original: Any, errors: list[Any]) -> Any:
    """What is raised once all `except*` clauses have run: what they raised anew, and what they left or raised on, together."""
    if not errors:
        return None
    if not isinstance(original, BaseExceptionGroup):
        return errors[0]
    told = [error for error in errors if error is not None]
    anew = [error for error in told if not _is_part_of(error, original)]
    passed_on = [error for error in told if _is_part_of(error, original)]
    if passed_on:
        leaves = [id(leaf) for error in passed_on for leaf in _leaves(error)]
        anew.append(_split(original, lambda error: id(error) in leaves, False)[0])
    if len(anew) > 1:
        return ExceptionGroup("", anew)
    return anew[0] if anew else None


def _is_part_of(error: Any, original: Any) -> bool:
    """Was it split off, not raised anew?"""
    return (
        isinstance(error, BaseExceptionGroup)
        and error.__traceback__ is original.__traceback__
        and error.__cause__ is original.__cause__
        and error.__context__ is original.__context__
    )


def _leaves(error: Any) -> list[Any]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for member in error.exceptions for leaf in _leaves(member)]
