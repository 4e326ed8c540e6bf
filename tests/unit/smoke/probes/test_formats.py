"""The numbers behind the gpu tier: formats against their specifications, references against plain loops, tolerances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builder.smoke.probes import formats
from builder.smoke.probes.formats import E2M1, E4M3, Floats, bf16, decode, pack, quantise, signed
from builder.smoke.probes.reference import SLICE, errors, moe, route, tolerance


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


class TestFormats:
    def test_e4m3_has_the_values_of_its_specification(self) -> None:
        assert len(E4M3) == 127
        assert E4M3[0] == 0
        assert E4M3[1] == 2.0**-9, "the smallest subnormal number"
        assert E4M3[0b0001_000] == 2.0**-6, "the smallest normal number"
        assert E4M3[0b0111_000] == 1
        assert E4M3[0b0111_100] == 1.5
        assert E4M3[126] == 448, "the largest; 127 is not a number"
        assert np.all(np.diff(E4M3) > 0)

    def test_e2m1_has_one_bit_of_fraction(self) -> None:
        made = [(1 + (code & 1) / 2) * 2.0 ** ((code >> 1) - 1) if code > 1 else code / 2 for code in range(8)]
        assert E2M1.tolist() == made

    @pytest.mark.parametrize(
        ("value", "code"),
        [(0.24, 0), (0.25, 0), (0.26, 1), (0.75, 2), (2.5, 4), (3.5, 6), (5, 6), (5.01, 7), (100, 7), (-2.5, 12)],
    )
    def test_rounds_to_the_nearest_ties_to_even(self, value: float, code: int) -> None:
        assert signed(floats(value), E2M1, 8).tolist() == [code]

    def test_every_number_of_a_format_rounds_to_itself(self) -> None:
        for table, sign in ((E2M1, 8), (E4M3, 128)):
            both = np.concatenate([table, -table[1:]])
            assert decode(signed(both, table, sign), table, sign).tolist() == both.tolist()

    def test_two_codes_in_a_byte_the_first_in_the_lower_half(self) -> None:
        assert pack(np.array([1, 2, 15, 0], dtype=np.uint8)).tolist() == [0x21, 0x0F]

    @pytest.mark.parametrize(
        ("value", "rounded"),
        [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7), (-3.1, -3.09375)],
    )
    def test_bfloat16_has_eight_bits(self, value: float, rounded: float) -> None:
        assert bf16(floats(value)).tolist() == [rounded]

    @pytest.mark.parametrize(("name", "block"), [("nvfp4", 16), ("mxfp4", 32)])
    def test_fp4_equals_a_loop_over_blocks(self, name: str, block: int) -> None:
        weights = np.random.default_rng(3).standard_normal((4, 64)) * 0.05
        found = quantise(name, weights)
        for row in range(4):
            for start in range(0, 64, block):
                code = int(found.scale[row, start // block])
                unit = 2.0 ** (code - 127) if name == "mxfp4" else float(E4M3[code]) * found.tensor_scale
                for column in range(start, start + block):
                    byte = int(found.codes[row, column // 2])
                    four = byte >> 4 if column % 2 else byte & 15
                    value = float(E2M1[four & 7]) * (-1 if four & 8 else 1) * unit
                    assert found.values[row, column] == pytest.approx(value, abs=1e-12)
                    near = min(abs(abs(weights[row, column]) - float(each) * unit) for each in E2M1)
                    assert abs(value - weights[row, column]) == pytest.approx(near, abs=1e-12), "no nearer number"

    def test_mxfp4_puts_the_largest_of_a_block_into_the_last_binade(self) -> None:
        weights = np.concatenate([np.full(31, 0.1), floats(5.0), np.full(31, 0.1), floats(7.9)])[None]
        assert quantise("mxfp4", weights).scale.tolist() == [[127, 127]]

    def test_a_block_of_zeros_is_zeros(self) -> None:
        weights = np.zeros((1, 32))
        weights[0, 16:] = 1
        found = quantise("nvfp4", weights)
        assert found.values[0, :16].tolist() == [0.0] * 16
        assert found.scale.min() > 0

    @pytest.mark.parametrize("name", ["fp8", "fp8-block"])
    def test_fp8_scales_are_bfloat16_and_cover_their_weights(self, name: str) -> None:
        weights = np.random.default_rng(4).standard_normal((256, 256))
        found = quantise(name, weights)
        assert found.scale.shape == ((256, 1) if name == "fp8" else (2, 2))
        assert np.array_equal(found.scale, bf16(found.scale))
        step = np.repeat(np.repeat(found.scale, 256 // found.scale.shape[0], 0), 256 // found.scale.shape[1], 1) * 32
        assert np.all(np.abs(found.values - weights) <= step / 2 * 1.01 + np.abs(weights) * 2.0**-7)

    @pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "fp8"])
    def test_rounding_to_a_format_is_far_coarser_than_its_tolerance(self, name: str) -> None:
        low, high = {"nvfp4": (0.07, 0.12), "mxfp4": (0.08, 0.14), "fp8": (0.02, 0.03)}[name]
        weights = np.random.default_rng(5).standard_normal((64, 512))
        rms, _ = errors(quantise(name, weights).values, weights)
        assert low < rms < high
        assert tolerance(name, 1024).rms < rms / 2

    def test_steps_are_those_of_the_tables(self) -> None:
        one = int(np.searchsorted(E4M3, 1.0))
        assert formats.STEP["fp8"] == E4M3[one + 1] - E4M3[one]
        assert formats.STEP["nvfp4"] == formats.STEP["fp8"], "its scales are E4M3"
        assert formats.STEP["mxfp4"] == E2M1[3] - E2M1[2]


class TestReference:
    def test_routing_takes_the_largest_and_its_weights_sum_to_one(self) -> None:
        ids, weights = route(np.array([[0.0, 2.0, 1.0, -1.0]]), 2)
        assert ids.tolist() == [[1, 2]]
        assert weights[0].tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])

    def test_a_mixture_of_experts_equals_plain_loops(self) -> None:
        generator = np.random.default_rng(6)
        x, w13, w2 = (generator.standard_normal(shape) for shape in ((3, 4), (5, 6, 4), (5, 4, 3)))
        ids, weights = route(generator.standard_normal((3, 5)), 2)
        found = moe(x, w13, w2, ids, weights)
        for row in range(3):
            want = [0.0] * 4
            for expert, weight in zip(ids[row], weights[row], strict=True):
                inner = [sum(w13[expert, n, k] * x[row, k] for k in range(4)) for n in range(6)]
                gated = [inner[n] / (1 + math.exp(-inner[n])) * inner[n + 3] for n in range(3)]
                for k in range(4):
                    want[k] += weight * sum(w2[expert, k, n] * gated[n] for n in range(3))
            assert found[row].tolist() == pytest.approx(want)

    def test_nan_has_an_infinite_error(self) -> None:
        assert errors(floats(1, math.nan), floats(1, 1)) == (math.inf, math.inf)
        assert errors(floats(1, math.inf), floats(1, 1)) == (math.inf, math.inf)

    def test_errors_are_relative_to_the_usual_size(self) -> None:
        rms, worst = errors(floats(3, 3.3, 3, 3), floats(3, 3, 3, 3))
        assert rms == pytest.approx(0.05)
        assert worst == pytest.approx(0.3 / 6)


EXPERTS, HIDDEN, INNER, TOP, ROWS = 3, 256, 128, 2, 24


class Case:
    """A mixture of experts, and its result by a kernel that rounds to bfloat16 where a real kernel does."""

    def __init__(self, name: str) -> None:
        generator = np.random.default_rng(7)
        self.name = name
        self.up = [quantise(name, 0.05 * generator.standard_normal((2 * INNER, HIDDEN))) for _ in range(EXPERTS)]
        self.down = [quantise(name, 0.05 * generator.standard_normal((HIDDEN, INNER))) for _ in range(EXPERTS)]
        self.w13 = np.stack([each.values for each in self.up])
        self.w2 = np.stack([each.values for each in self.down])
        self.x = bf16(generator.standard_normal((ROWS, HIDDEN)))
        self.ids, self.weights = route(generator.standard_normal((ROWS, EXPERTS)), TOP)
        self.want = moe(self.x, self.w13, self.w2, self.ids, self.weights)

    def kernel(self, w13: Floats, w2: Floats, lost: slice | None = None) -> Floats:
        w13, w2 = bf16(w13), bf16(w2)
        out = np.zeros_like(self.x)
        for expert in range(EXPERTS):
            row, place = np.nonzero(self.ids == expert)
            inner = bf16(self.x[row] @ w13[expert].T)
            gated = bf16(inner[:, :INNER] / (1 + np.exp(-inner[:, :INNER])) * inner[:, INNER:])
            outer = gated @ w2[expert].T
            if lost is not None and expert == 0:
                # One tile of the result lacks one slice of its sum.
                outer[:8, :64] -= gated[:8, lost] @ w2[expert][:64, lost].T
            np.add.at(out, row, bf16(outer * self.weights[row, place][:, None]))
        return bf16(out)

    def accepts(self, got: Floats) -> bool:
        limit = tolerance(self.name, HIDDEN)
        rms, worst = errors(got, self.want)
        return rms <= limit.rms and worst <= limit.worst


@pytest.fixture(scope="module", params=["nvfp4", "mxfp4", "fp8", "fp8-block"])
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


class TestTolerance:
    def test_a_right_kernel_passes(self, case: Case) -> None:
        assert case.accepts(case.kernel(case.w13, case.w2))

    def test_a_sum_that_lacks_a_slice_in_one_tile_fails(self, case: Case) -> None:
        assert not case.accepts(case.kernel(case.w13, case.w2, slice(32, 32 + SLICE)))

    def test_weights_off_by_a_step_each_fail(self, case: Case) -> None:
        step = np.random.default_rng(8).choice([1 - formats.STEP[case.name.partition("-")[0]] / 2, 1], case.w13.shape)
        assert not case.accepts(case.kernel(case.w13 * step, case.w2))

    def test_the_halves_of_gate_and_up_exchanged_fail(self, case: Case) -> None:
        swapped = np.concatenate([case.w13[:, INNER:], case.w13[:, :INNER]], 1)
        assert not case.accepts(case.kernel(swapped, case.w2))

    def test_scales_of_other_blocks_fail(self, case: Case) -> None:
        wrong = case.w13.copy()
        wrong[0, :64, :128] *= 2
        assert not case.accepts(case.kernel(wrong, case.w2))

    def test_zeros_fail(self, case: Case) -> None:
        assert not case.accepts(np.zeros_like(case.want))
