//! Arithmetic: sprig's `numeric.go`. Integers are 64 bits wide and wrap around.

use gotemplate::function::{Call, Error, Int64, Rest};
use gotemplate::value::Value;

use super::MAX_ITEMS;
use super::budget::MEMORY_OF_A_PART;
use super::conversions::{float64_of, int64_of};
use super::decimal::Decimal;
use crate::context::Context;

const DIVIDE_BY_ZERO: &str = "runtime error: integer divide by zero";

pub(super) fn add(values: Rest<Value>) -> Int64 {
    Int64(
        values
            .iter()
            .fold(0, |sum, value| sum.wrapping_add(int64_of(value))),
    )
}

pub(super) fn add1(value: Value) -> Int64 {
    Int64(int64_of(&value).wrapping_add(1))
}

pub(super) fn sub(a: Value, b: Value) -> Int64 {
    Int64(int64_of(&a).wrapping_sub(int64_of(&b)))
}

pub(super) fn mul(first: Value, others: Rest<Value>) -> Int64 {
    Int64(others.iter().fold(int64_of(&first), |product, value| {
        product.wrapping_mul(int64_of(value))
    }))
}

pub(super) fn div(a: Value, b: Value) -> Result<Int64, Error> {
    match int64_of(&b) {
        0 => Err(Error::new(DIVIDE_BY_ZERO)),
        divisor => Ok(Int64(int64_of(&a).wrapping_div(divisor))),
    }
}

pub(super) fn modulo(a: Value, b: Value) -> Result<Int64, Error> {
    match int64_of(&b) {
        0 => Err(Error::new(DIVIDE_BY_ZERO)),
        divisor => Ok(Int64(int64_of(&a).wrapping_rem(divisor))),
    }
}

pub(super) fn max(first: Value, others: Rest<Value>) -> Int64 {
    Int64(others.iter().map(int64_of).fold(int64_of(&first), i64::max))
}

pub(super) fn min(first: Value, others: Rest<Value>) -> Int64 {
    Int64(others.iter().map(int64_of).fold(int64_of(&first), i64::min))
}

/// Go's `math.Max`: unlike in Rust, NaN wins over everything except infinity.
pub(super) fn maxf(first: Value, others: Rest<Value>) -> f64 {
    others.iter().map(float64_of).fold(float64_of(&first), |a, b| {
        if a == f64::INFINITY || b == f64::INFINITY {
            f64::INFINITY
        } else if a.is_nan() || b.is_nan() {
            f64::NAN
        } else if a == 0.0 && b == 0.0 {
            if a.is_sign_negative() { b } else { a }
        } else {
            a.max(b)
        }
    })
}

/// Go's `math.Min`.
pub(super) fn minf(first: Value, others: Rest<Value>) -> f64 {
    others.iter().map(float64_of).fold(float64_of(&first), |a, b| {
        if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
            f64::NEG_INFINITY
        } else if a.is_nan() || b.is_nan() {
            f64::NAN
        } else if a == 0.0 && b == 0.0 {
            if a.is_sign_negative() { a } else { b }
        } else {
            a.min(b)
        }
    })
}

type Operation = fn(&Decimal, &Decimal) -> Result<Decimal, Error>;

fn exactly(call: &mut Call, first: f64, others: &[Value], operation: Operation) -> Result<f64, Error> {
    let mut result = Decimal::from_f64(first)?;
    for other in others {
        // A product has the digits of both factors.
        call.take_steps(result.size())?;
        result = operation(&result, &Decimal::from_f64(float64_of(other))?)?;
    }
    Ok(result.to_f64())
}

pub(super) fn addf(call: &mut Call, values: Rest<Value>) -> Result<f64, Error> {
    exactly(call, 0.0, &values, |a, b| Ok(a.add(b)))
}

pub(super) fn add1f(call: &mut Call, value: Value) -> Result<f64, Error> {
    exactly(call, float64_of(&value), &[Value::Int(1)], |a, b| Ok(a.add(b)))
}

pub(super) fn subf(call: &mut Call, first: Value, others: Rest<Value>) -> Result<f64, Error> {
    exactly(call, float64_of(&first), &others, |a, b| Ok(a.sub(b)))
}

pub(super) fn mulf(call: &mut Call, first: Value, others: Rest<Value>) -> Result<f64, Error> {
    exactly(call, float64_of(&first), &others, |a, b| Ok(a.mul(b)))
}

pub(super) fn divf(call: &mut Call, first: Value, others: Rest<Value>) -> Result<f64, Error> {
    exactly(call, float64_of(&first), &others, Decimal::div)
}

pub(super) fn floor(value: Value) -> f64 {
    float64_of(&value).floor()
}

pub(super) fn ceil(value: Value) -> f64 {
    float64_of(&value).ceil()
}

/// Rounds to `places` after the point; up if the remainder is at least `threshold`, by default .5. The remainder of a
/// negative number is negative, so those are always rounded down.
pub(super) fn round(value: Value, places: i64, threshold: Rest<f64>) -> f64 {
    let threshold = threshold.first().copied().unwrap_or(0.5);
    let power = power_of_ten(places);
    let shifted = power * float64_of(&value);
    let rounded = if shifted.fract() >= threshold {
        shifted.ceil()
    } else {
        shifted.floor()
    };
    rounded / power
}

/// Go's `math.Pow(10, exponent)`, with the rounding of square-and-multiply.
fn power_of_ten(exponent: i64) -> f64 {
    let (mut result, mut result_power) = (1.0_f64, 0_i64);
    // 10 is 0.625 × 2^4.
    let (mut square, mut square_power) = (0.625_f64, 4_i64);
    let mut rest = exponent.unsigned_abs();
    while rest != 0 {
        if square_power > 1 << 12 {
            result_power += square_power;
            break;
        }
        if rest & 1 == 1 {
            result *= square;
            result_power += square_power;
        }
        square *= square;
        square_power *= 2;
        if square < 0.5 {
            square += square;
            square_power -= 1;
        }
        rest >>= 1;
    }
    if exponent < 0 {
        result = 1.0 / result;
        result_power = -result_power;
    }
    // Beyond these the result is infinite or zero anyway; splitting the exponent in halves keeps both factors finite.
    let result_power = result_power.clamp(-2200, 2200) as i32;
    result * 2_f64.powi(result_power / 2) * 2_f64.powi(result_power - result_power / 2)
}

pub(super) fn until(call: &mut Call, count: i64) -> Result<Vec<i64>, Error> {
    until_step(call, 0, count, if count < 0 { -1 } else { 1 })
}

/// From `start` up to, but not including, `end`. Empty if `step` does not lead there.
pub(super) fn until_step(call: &mut Call, start: i64, end: i64, step: i64) -> Result<Vec<i64>, Error> {
    let leads = if end < start { step < 0 } else { step > 0 };
    if !leads {
        return Ok(Vec::new());
    }
    let length = end.abs_diff(start) / step.unsigned_abs();
    if length >= MAX_ITEMS {
        return Err(Error::new("list is too long"));
    }
    call.check_memory(length as usize * MEMORY_OF_A_PART)?;
    call.take_steps(length / 4)?;
    let numbers = std::iter::successors(Some(start), |number| number.checked_add(step));
    Ok(numbers
        .take_while(|number| if step < 0 { *number > end } else { *number < end })
        .collect())
}

/// The numbers of a range, both ends included, as one text: `seq END`, `seq START END`, `seq START STEP END`.
pub(super) fn seq(call: &mut Call, bounds: Rest<i64>) -> Result<String, Error> {
    let (start, step, end) = match *bounds {
        [end] => (1, if end < 1 { -1 } else { 1 }, end),
        [start, end] => (start, if end < start { -1 } else { 1 }, end),
        [start, step, end] if end < start && step > 0 => return Ok(String::new()),
        [start, step, end] => (start, step, end),
        _ => return Ok(String::new()),
    };
    let behind = if end < start {
        end.wrapping_sub(1)
    } else {
        end.wrapping_add(1)
    };
    let numbers = until_step(call, start, behind, step)?;
    Ok(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
}

/// At least `min`, less than `max`.
pub(super) fn rand_int(call: &mut Call, min: i64, max: i64) -> Result<i64, Error> {
    match u64::try_from(max.wrapping_sub(min)) {
        Ok(span) if span > 0 => Ok(min.wrapping_add(call.host::<Context>()?.random_below(span) as i64)),
        _ => Err(Error::new("invalid argument to Intn")),
    }
}
