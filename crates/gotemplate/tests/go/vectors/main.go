// Prints the expectations of the vectors again: go run ./vectors ../vectors/*
//
// A vector is a file of up to three parts with `----` between them: settings (`data: <JSON>`, `data: T`, `missingkey: zero`, `lines`, `tree`), the
// input, and what Go makes of it. With `lines` every line of the input is a template of its own, in Go's double quotes if it needs to be, and every line of the expectation is `= `
// and the quoted output or `! ` and the error. With `tree` the template is parsed and printed, not executed.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gotemplate-goldens/oracle"
)

const separator = "----\n"

func main() {
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		parts := strings.SplitN(string(text), separator, 3)
		if len(parts) < 2 {
			log.Fatalf("%s: no settings", file)
		}
		expectation := expect(parts[0], parts[1], strings.HasPrefix(filepath.Base(file), "err_"), file)
		text = []byte(parts[0] + separator + parts[1] + separator + expectation)
		if err := os.WriteFile(file, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

func expect(settings, input string, fails bool, file string) string {
	c := oracle.Case{}
	lines, tree := false, false
	for _, line := range strings.Split(settings, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "data":
			c.Data = value
		case "missingkey":
			c.MissingKey = value
		case "lines":
			lines = true
		case "tree":
			tree = true
		}
	}
	run := func(text string) (string, bool) {
		if tree {
			return oracle.Tree(text)
		}
		c.Text = text
		return oracle.Run(c)
	}
	if !lines {
		out, failed := run(strings.TrimSuffix(input, "\n"))
		if failed != fails {
			log.Fatalf("%s: failed %v: %s", file, failed, out)
		}
		return out + "\n"
	}
	var b strings.Builder
	for _, line := range strings.Split(strings.TrimSuffix(input, "\n"), "\n") {
		if line == "" {
			fmt.Fprintln(&b)
			continue
		}
		text := line
		if strings.HasPrefix(line, `"`) {
			var err error
			if text, err = strconv.Unquote(line); err != nil {
				log.Fatalf("%s: %v: %s", file, err, line)
			}
		}
		out, failed := run(text)
		if failed != fails {
			log.Printf("%s: failed %v: %s -> %s", file, failed, line, out)
		}
		if failed {
			fmt.Fprintf(&b, "! %s\n", strings.ReplaceAll(out, "\n", "\\n"))
		} else {
			fmt.Fprintf(&b, "= %s\n", strconv.Quote(out))
		}
	}
	return b.String()
}
