"""No method of the API answers those whom it is none of the business."""

from __future__ import annotations

from unauthorised import try_all

METHODS, WAYS = 21, 12


def test_every_method_by_every_way() -> None:
    made = try_all()
    assert len(made) == METHODS * WAYS
    assert [str(attempt) for attempt in made if attempt.let_in] == []
    codes = {attempt.code for attempt in made}
    assert codes >= {"UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "UNAVAILABLE"}, codes
