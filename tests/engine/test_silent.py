from __future__ import annotations

from amptui.engine.silent import silenced, silent_layers

LAYERS = ("stem.weight", "bn.bias", "head.weight")


def test_layers_that_are_zero_under_the_policy_and_never_in_fp32_are_silent() -> None:
    found = silent_layers(
        "main", LAYERS, {1: (0.0, 0.1, 2.0), 2: (0.0, 0.0, 1.0)}, {0: (1e-3, 0.1, 2.0), 1: (2e-3, 0.1, 1.0)}
    )
    assert found is not None
    assert (found.update, found.layers, found.of, found.norm) == ("main", ("stem.weight",), 3, 2e-3)


def test_a_layer_that_moved_once_or_that_fp32_leaves_at_zero_too_is_not() -> None:
    fp32 = {0: (1e-3, 0.0, 2.0), 1: (0.0, 0.0, 2.0)}
    assert silent_layers("main", LAYERS, {0: (0.0, 0.0, 1.0), 1: (0.0, 0.0, 1.0)}, fp32) is None
    assert silent_layers("main", LAYERS, {0: (0.0, 0.1, 1.0), 1: (1e-4, 0.1, 1.0)}, {0: (1e-3, 0.1, 2.0)}) is None


def test_what_is_but_rounding_in_fp32_is_not() -> None:
    assert silent_layers("main", LAYERS, {0: (1.0, 0.0, 1.0)}, {0: (1.0, 1e-8, 1.0)}) is None
    assert silenced(LAYERS, {"bn.bias"}, (1.0, 1e-8, 1.0)) == ()
    assert silenced(LAYERS, {"bn.bias"}, (1.0, 1e-4, 1.0)) == ("bn.bias",)


def test_a_whole_gradient_of_zero_and_layers_without_one_are_other_matters() -> None:
    assert silent_layers("main", LAYERS, {0: (0.0, 0.0, 0.0)}, {0: (1.0, 1.0, 1.0)}) is None
    assert silent_layers("main", LAYERS, {0: (-1.0, 1.0, 1.0)}, {0: (-1.0, 1.0, 1.0)}) is None
    assert silent_layers("main", LAYERS, {}, {0: (1.0, 1.0, 1.0)}) is None
