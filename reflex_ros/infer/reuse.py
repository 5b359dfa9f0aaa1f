"""What is computed once and used again: one switch for each kind of reuse, all of them exact.

Every switch changes what is computed when, never what is computed; results agree up to the order
of summation (``docs/paper-map.md``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reuse:
    """Switches; the default is everything on but ``traced``.

    Attributes:
        prefix_kv: Keys and values of the prefix serve all denoise steps; off = full recomputation.
        static_rows: The suffix writes its keys behind the prefix; off = concatenation per layer.
        drop_masked: Padding and masked cameras are left out; off = the reference's token layout.
        state_once: Pi0's state token runs once per call; off = with the actions in every step.
            SmolVLA's state is a block of its own behind a finished prefix; off = part of it.
        cross_kv: SmolVLA's cross layers project the prefix once; off = in every step.
        time_table: What depends on the flow time alone (Pi0.5's modulation, the time half of the
            action MLP) comes from a table; off = computed in every step.
        last_layer_kv: The prefix's last layer computes keys and values only.
        packed: Projections of the same input are one product.
        fused: Attention in one kernel that stores no logits; off = product, softmax, product.
        aligned: State and actions start where the number of keys fills whole tiles of the
            bfloat16 kernel, behind masked rows, and in any type if ``traced``, so that prompts
            share a graph; off = right behind the prefix.
        traced: The layers of a denoise step are a graph (``passes.LayerPass``), traced in the
            first call with a new number of rows; off = one operation after another. Only for
            processes that call often: tracing takes as long as some calls.
    """

    prefix_kv: bool = True
    static_rows: bool = True
    drop_masked: bool = True
    state_once: bool = True
    cross_kv: bool = True
    time_table: bool = True
    last_layer_kv: bool = True
    packed: bool = True
    fused: bool = True
    aligned: bool = True
    traced: bool = False


def reference_reuse(*, prefix_kv: bool = True) -> Reuse:
    """Return what the reference implementations do: nothing but, if asked, the prefix cache."""
    return Reuse(
        prefix_kv=prefix_kv, static_rows=False, drop_masked=False, state_once=False,
        cross_kv=False, time_table=False, last_layer_kv=False, packed=False, fused=False,
        aligned=False,
    )  # fmt: skip
