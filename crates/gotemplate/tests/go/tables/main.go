// Prints src/unicode/classes.rs of the crate gostd: the character classes that Go's template language and fmt depend on, of this Go version.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

func main() {
	fmt.Println("//! Go's character classes, as ranges of code points.")
	fmt.Println("//!")
	fmt.Printf("//! Printed by `tests/go/tables` of gotemplate (Unicode %s); do not edit.\n\n", unicode.Version)
	fmt.Print(`/// ` + "Whether Go's `unicode.IsLetter` holds" + `.
pub fn is_letter(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphabetic() } else { contains(LETTERS, c) }
}

/// ` + "`unicode.IsDigit`" + `.
pub fn is_digit(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { contains(DIGITS, c) }
}

/// ` + "`strconv.IsPrint`, which is `unicode.IsPrint`" + `.
pub fn is_print(c: char) -> bool {
    if c.is_ascii() { (' '..='~').contains(&c) } else { contains(PRINTABLE, c) }
}

fn contains(ranges: &[(u32, u32)], c: char) -> bool {
    let c = u32::from(c);
    let after = ranges.partition_point(|(first, _)| *first <= c);
    after > 0 && c <= ranges[after - 1].1
}

`)
	table("LETTERS", unicode.IsLetter)
	table("DIGITS", unicode.IsDigit)
	table("PRINTABLE", strconv.IsPrint)
}

func table(name string, in func(rune) bool) {
	var ranges []string
	first := rune(-1)
	for r := rune(0x80); r <= unicode.MaxRune+1; r++ {
		yes := r <= unicode.MaxRune && in(r)
		if yes && first < 0 {
			first = r
		}
		if !yes && first >= 0 {
			ranges = append(ranges, fmt.Sprintf("(0x%x, 0x%x)", first, r-1))
			first = -1
		}
	}
	fmt.Printf("#[rustfmt::skip]\nstatic %s: &[(u32, u32)] = &[\n", name)
	for len(ranges) > 0 {
		n := min(6, len(ranges))
		fmt.Printf("    %s,\n", strings.Join(ranges[:n], ", "))
		ranges = ranges[n:]
	}
	fmt.Print("];\n\n")
}
