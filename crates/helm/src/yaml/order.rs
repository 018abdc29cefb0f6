//! The order of keys in YAML output (go-yaml's `sorter.go`): letters by code point, other characters before letters,
//! digits by the number they form.
//!
//! The comparison is not transitive (`a1b` < `a9` < `a10` < `a1b`), so sets of such keys have no correct order, and
//! Helm prints them in a different order each time; here the order depends only on the keys.

use gostd::unicode::{is_digit, is_letter};

use super::emit::Dialect;

/// Sorts entries by their keys.
pub(super) fn sort<T>(entries: Vec<T>, dialect: Dialect, key: impl Fn(&T) -> &str + Copy) -> Vec<T> {
    // The standard sort may panic if an order is not total.
    if entries
        .windows(2)
        .all(|pair| !is_less(key(&pair[1]), key(&pair[0]), dialect))
    {
        return entries;
    }
    merge_sort(entries, dialect, key)
}

fn merge_sort<T>(mut entries: Vec<T>, dialect: Dialect, key: impl Fn(&T) -> &str + Copy) -> Vec<T> {
    if entries.len() < 2 {
        return entries;
    }
    let length = entries.len();
    let right = merge_sort(entries.split_off(length / 2), dialect, key);
    let left = merge_sort(entries, dialect, key);
    let mut merged = Vec::with_capacity(length);
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let from_right = is_less(key(b), key(a), dialect);
        merged.extend(if from_right { right.next() } else { left.next() });
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

/// Whether `a` comes before `b`.
fn is_less(a: &str, b: &str, dialect: Dialect) -> bool {
    let mut same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !a.is_char_boundary(same) {
        same -= 1;
    }
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    let (Some(first_a), Some(first_b)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return a.len() < b.len();
    };
    match (is_letter(first_a), is_letter(first_b)) {
        (true, true) => return first_a < first_b,
        (a_is_letter, b_is_letter) if a_is_letter != b_is_letter => {
            // Version 3 ends a number at a letter: `a1b` before `a10`.
            let in_number = dialect == Dialect::V3 && a[..same].chars().next_back().is_some_and(is_digit);
            return if in_number { a_is_letter } else { b_is_letter };
        }
        _ => {}
    }
    // After other digits a zero counts, so that `10` is greater than `1`.
    let continued = first_a == '0' || first_b == '0';
    let start = i64::from(
        continued
            && a[..same]
                .chars()
                .rev()
                .take_while(|c| is_digit(*c))
                .any(|c| c != '0'),
    );
    let (number_a, digits_a) = leading_number(rest_a, start);
    let (number_b, digits_b) = leading_number(rest_b, start);
    (number_a, digits_a, first_a) < (number_b, digits_b, first_b)
}

/// The digits at the start of a text, as a number continuing `start`, and their count.
fn leading_number(text: &str, start: i64) -> (i64, usize) {
    text.chars()
        .take_while(|c| is_digit(*c))
        .fold((start, 0), |(number, count), c| {
            let digit = i64::from(u32::from(c)) - i64::from(b'0');
            (number.wrapping_mul(10).wrapping_add(digit), count + 1)
        })
}
