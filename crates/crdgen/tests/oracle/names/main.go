// Command names reads chart names, one a line, and prints the kind and the plural that the Go
// system gives them: its ToGolangName and flect.Pascalize for the kind, controller-gen's
// strings.ToLower(flect.Pluralize(kind)) for the plural.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/gobuffalo/flect"
)

func goName(s string) string {
	out := ""
	for i, part := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if i == 0 && strings.IndexAny(part, "0123456789") == 0 {
			out += "_"
		}
		out += strings.ToUpper(part[:1]) + part[1:]
	}
	return out
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name := strings.TrimSpace(lines.Text())
		if name == "" {
			continue
		}
		kind := flect.Pascalize(goName(name))
		fmt.Printf("%s\t%s\t%s\n", name, kind, strings.ToLower(flect.Pluralize(kind)))
	}
}
