//! Exact decimal arithmetic: shopspring/decimal 1.4, which sprig uses for `addf` and similar functions.

use gostd::number;
use gotemplate::function::Error;
use num_bigint::{BigInt, Sign};

/// A number `digits` × 10^`exponent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: BigInt,
    exponent: i64,
}

/// Digits after the point in the result of a division.
const DIVISION_PRECISION: i64 = 16;

impl Decimal {
    /// The shortest decimal number that parses back to `f`.
    pub(super) fn from_f64(f: f64) -> Result<Self, Error> {
        if !f.is_finite() {
            let name = if f.is_nan() {
                "NaN"
            } else if f > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            return Err(Error::new(format!("Cannot create a Decimal from {name}")));
        }
        let mut text = Vec::new();
        number::append_float(&mut text, f, b'e', None, false);
        let text = String::from_utf8_lossy(&text);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}").parse().unwrap_or_default();
        let exponent = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64;
        Ok(if f == 0.0 {
            Self { digits, exponent: 0 }
        } else {
            Self { digits, exponent }
        })
    }

    /// The nearest float.
    pub(super) fn to_f64(&self) -> f64 {
        format!("{}e{}", self.digits, self.exponent)
            .parse()
            .unwrap_or(f64::NAN)
    }

    /// The cost of computing with it, in words of 64 bits.
    pub(super) fn size(&self) -> u64 {
        self.digits.bits() / 64 + self.exponent.unsigned_abs() / 16
    }

    pub(super) fn add(&self, other: &Self) -> Self {
        let (mine, theirs, exponent) = self.aligned(other);
        Self {
            digits: mine + theirs,
            exponent,
        }
    }

    pub(super) fn sub(&self, other: &Self) -> Self {
        let (mine, theirs, exponent) = self.aligned(other);
        Self {
            digits: mine - theirs,
            exponent,
        }
    }

    pub(super) fn mul(&self, other: &Self) -> Self {
        Self {
            digits: &self.digits * &other.digits,
            exponent: self.exponent + other.exponent,
        }
    }

    /// Divides to 16 digits after the point, rounded half away from zero.
    pub(super) fn div(&self, other: &Self) -> Result<Self, Error> {
        if other.digits.sign() == Sign::NoSign {
            return Err(Error::new("decimal division by 0"));
        }
        let shift = self.exponent - other.exponent + DIVISION_PRECISION;
        let (dividend, divisor) = if shift < 0 {
            (self.digits.clone(), &other.digits * power_of_ten(-shift))
        } else {
            (&self.digits * power_of_ten(shift), other.digits.clone())
        };
        let quotient = &dividend / &divisor;
        let rest = &dividend - &quotient * &divisor;
        let up = rest.magnitude() * 2_u8 >= *divisor.magnitude();
        let away = if dividend.sign() == divisor.sign() { 1 } else { -1 };
        let digits = if up { quotient + away } else { quotient };
        Ok(Self {
            digits,
            exponent: -DIVISION_PRECISION,
        })
    }

    /// Both numbers with the smaller exponent.
    fn aligned(&self, other: &Self) -> (BigInt, BigInt, i64) {
        let exponent = self.exponent.min(other.exponent);
        let scaled = |number: &Self| &number.digits * power_of_ten(number.exponent - exponent);
        (scaled(self), scaled(other), exponent)
    }
}

fn power_of_ten(exponent: i64) -> BigInt {
    // Exponents of floats, and of products as long as a template, are far below this.
    BigInt::from(10).pow(u32::try_from(exponent).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_compute_as_on_paper() {
        let compute = |a: f64, b: f64, operation: fn(&Decimal, &Decimal) -> Decimal| {
            operation(&Decimal::from_f64(a).unwrap(), &Decimal::from_f64(b).unwrap())
                .to_f64()
                .to_string()
        };
        assert_eq!(compute(0.1, 0.2, Decimal::add), "0.3");
        assert_eq!(compute(1.1, 1.0, Decimal::sub), "0.1");
        assert_eq!(compute(1.1, 1.1, Decimal::mul), "1.21");
        assert_eq!(compute(1.0, 3.0, |a, b| a.div(b).unwrap()), "0.3333333333333333");
        assert_eq!(
            compute(-2.0, 3.0, |a, b| a.div(b).unwrap()),
            "-0.6666666666666667"
        );
        assert_eq!(compute(1e300, 1e-300, Decimal::add), format!("{}", 1e300));
    }
}
