// Prints random templates with what Go makes of them, as JSON lines: go run ./differential [-seed N] [-n N] [-corpus folder]
//
// Templates are grown from a grammar and then, often, damaged: cut, doubled, shuffled. With a corpus (any folder of charts) files of it are
// damaged as well, for the parser only. `cargo test --test differential -- --ignored` reads the lines.
package main

import (
	"encoding/json"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gotemplate-goldens/oracle"
)

type line struct {
	oracle.Case
	Bytes  []byte `json:"bytes"` // the text, which need not be UTF-8
	Tree   bool   `json:"tree"`
	Out    []byte `json:"out"`
	Failed bool   `json:"failed"`
}

const data = `{"a":{"x":"X","y":{"z":1}},"b":true,"big":1234567,"e":"","f":1.5,"l":[1,2,"three",null],"l2":[{"k":"v"},{}],"n":1,"null":null,"s":"text é","small":1e-7,"zero":0,"ll":[[1],[2,3]]}`

func main() {
	seed := flag.Uint64("seed", 1, "")
	n := flag.Int("n", 1000, "")
	corpus := flag.String("corpus", "", "")
	flag.Parse()
	g := generator{rand.New(rand.NewPCG(*seed, 0))}
	out := json.NewEncoder(os.Stdout)
	files := read(*corpus)
	for range *n {
		l := line{Case: oracle.Case{Data: data, MissingKey: g.pick("zero", "zero", "zero", "default", "error")}}
		text := ""
		if len(files) > 0 && g.chance(2) {
			text, l.Tree = g.damage(files[g.IntN(len(files))]), true
		} else {
			text = g.list(3)
			for g.chance(3) {
				text = g.damage(text)
			}
			l.Tree = g.chance(5)
		}
		l.Bytes = []byte(text)
		var result string
		if l.Tree {
			result, l.Failed = oracle.Tree(text)
		} else {
			c := l.Case
			c.Text = text
			result, l.Failed = oracle.Run(c)
		}
		// Addresses, the types of functions, and what Go would take for ever to print.
		if strings.Contains(result, "func(") || strings.Contains(result, "exceeded maximum") || address.MatchString(result) || len(result) > 1<<20 {
			continue
		}
		l.Out = []byte(result)
		l.Text = ""
		if err := out.Encode(l); err != nil {
			panic(err)
		}
	}
}

func read(folder string) (files []string) {
	if folder == "" {
		return nil
	}
	filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.Contains(path, "/templates/") {
			if text, err := os.ReadFile(path); err == nil && len(text) < 20000 {
				files = append(files, string(text))
			}
		}
		return nil
	})
	return files
}

var address = regexp.MustCompile("0x[0-9a-f]{6,}")

type generator struct{ *rand.Rand }

func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g generator) pick(items ...string) string { return items[g.IntN(len(items))] }

func (g generator) damage(text string) string {
	if text == "" {
		return g.pick("{{", "}}", "{{-", "a")
	}
	i, j := g.IntN(len(text)+1), g.IntN(len(text)+1)
	if i > j {
		i, j = j, i
	}
	if j-i > 20 && !g.chance(4) {
		j = i + g.IntN(20)
	}
	switch g.IntN(5) {
	case 0:
		return text[:i] + text[j:]
	case 1:
		return text[:j] + text[i:]
	case 2:
		return text[:i]
	case 3:
		return text[:i] + g.pick("{{", "}}", "{{-", "-}}", " - }}", "(", ")", "|", ".", ",", "\"", "`", "'", "\\", "\n", "$", ":=", "=", " ", "/*", "*/", "end", "{{ end }}",
			"{{ else }}", "else if", "nil", "\xff", "é", "\u00a0", "0x", "1_0", "e5", "-", "+", "i", "%", "range", "define \"x\"", "{{ break }}", "if ") + text[i:]
	default:
		return text[:i] + text[j:] + text[i:j]
	}
}

func (g generator) list(depth int) string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		b.WriteString(g.node(depth))
	}
	return b.String()
}

func (g generator) node(depth int) string {
	open, end := g.pick("{{", "{{ ", "{{- "), g.pick("}}", " }}", " -}}")
	action := func(text string) string { return open + text + end }
	if depth == 0 {
		return g.pick("text", " \n ", "\t", action(g.pipeline(1)))
	}
	switch g.IntN(16) {
	case 0:
		return g.pick("text", " \n ", "  x\n", "é")
	case 1, 2:
		return action(g.pick("if ", "with ", "with $v := ", "if $w := ")+g.pipeline(2)) + g.list(depth-1) + g.rest(depth, "if", "with") + action("end")
	case 3, 4:
		return action(g.pick("range ", "range $i, $e := ", "range $e := ", "range $x = ", "range $i, $x = ")+g.pipeline(2)) + g.list(depth-1) +
			g.pick("", "", action("break"), action("continue"), action("if "+g.pipeline(1))+action("break")+action("end")) + g.rest(depth) + action("end")
	case 5:
		return action(g.pick("$x := ", "$x = ", "$y := ", "$x := ")+g.pipeline(2)) + g.node(depth-1)
	case 6:
		return action(`template "t" ` + g.pipeline(1))
	case 7:
		if depth == 3 {
			return action(`define "t"`) + g.list(depth-1) + action("end")
		}
		return action(`block "b" `+g.pipeline(1)) + g.list(depth-1) + action("end")
	case 8:
		return g.pick("{{/* c */}}", "{{- /* c */ -}}", "{{/* c */ -}}")
	default:
		return action(g.pipeline(depth))
	}
}

func (g generator) rest(depth int, chain ...string) string {
	if g.chance(2) {
		return ""
	}
	if len(chain) > 0 && g.chance(3) {
		return "{{ else " + g.pick(chain...) + " " + g.pipeline(1) + " }}" + g.list(depth-1)
	}
	return "{{ else }}" + g.list(depth-1)
}

func (g generator) pipeline(depth int) string {
	text := g.command(depth)
	for g.chance(4) {
		text += g.pick(" | ", "|") + g.command(depth-1)
	}
	return text
}

func (g generator) command(depth int) string {
	if depth <= 0 || g.chance(2) {
		return g.operand(depth)
	}
	name := g.pick("and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "index", "slice", "len", "call", "print", "printf", "println", "html", "js", "urlquery",
		"include", "tpl", "dict", "set", "hasKey", "list", "strings", "int64", "uint8", "float64", "add", "upper", "repeat", "join", "first", "any", "typeOf", "values", "version",
		"struct", "holder.Version.Compare", "values.Table", "isTrue", "duration", "nilMap", "nilList", "none", "stringMap", "version.Compare")
	switch name {
	case "printf":
		name += ` "` + g.pick("%v", "%d", "%s|%s", "%q", "%5.2f", "%x", "%T %v", "%-5s|", "%[2]v", "%+v", "%#v", "%*d", "%") + `"`
	case "include", "tpl":
		name += " " + g.pick(`"t"`, `"t"`, `"b"`, `"{{ . }}"`, `"{{ .a.x }}{{ define \"t\" }}T{{ end }}{{ template \"t\" }}"`, g.operand(1))
	}
	for range g.IntN(4) {
		name += " " + g.operand(depth-1)
	}
	return name
}

func (g generator) operand(depth int) string {
	if depth > 0 && g.chance(3) {
		return "(" + g.pipeline(depth-1) + ")" + g.pick("", "", "", ".x", ".a.x", ".Major", ".nope.more")
	}
	return g.pick(".", "$", ".a", ".a.x", ".a.y.z", ".a.nope", ".a.nope.more", ".nope", ".nope.more", ".null", ".null.x", ".b", ".big", ".e", ".f", ".l", ".l2", ".ll", ".n", ".s", ".small",
		".zero", "$.a.y", "$.l", "$x", "$x.y", "$.nope.x", "1", "0", "-1", "2.5", "1e3", "0x10", "'a'", "1i", `"a"`, `""`, "`raw`", "true", "false", "nil", `"%d"`, `"x"`, "9999999999999999999",
		"values", "values.m", "struct", "version", "holder", "holder.Version", "holder.Any", "values.a", "3", `"k"`, "nilMap", "nilList", "none", "func")
}
