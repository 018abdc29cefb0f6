// Package oracle executes a template with Go's own engine, the way Helm does, over the functions and data that the Rust tests have as well.
package oracle

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
)

// Case is one template to execute.
type Case struct {
	Text       string `json:"text"`
	Data       string `json:"data"`       // JSON, or "T" for the struct
	MissingKey string `json:"missingkey"` // default, zero or error
}

// Run returns the output, or the text of the error.
func Run(c Case) (out string, failed bool) {
	t := template.New("main").Option("missingkey=" + or(c.MissingKey, "zero"))
	t.Funcs(functions(t))
	t, err := t.New("test").Parse(c.Text)
	if err != nil {
		return err.Error(), true
	}
	var data any
	if c.Data == "T" {
		data = value()
	} else if err := json.Unmarshal([]byte(or(c.Data, "null")), &data); err != nil {
		panic(fmt.Sprintf("%v: %s", err, c.Data))
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return err.Error(), true
	}
	return b.String(), false
}

// Names of functions that charts use.
//
//go:embed helm.txt
var helm string

// Tree returns how Go prints the parse tree, or the text of the error.
func Tree(text string) (out string, failed bool) {
	t := template.New("main")
	t.Funcs(functions(t))
	for _, name := range strings.Fields(helm) {
		t.Funcs(template.FuncMap{name: func() string { return "" }})
	}
	t, err := t.New("test").Parse(text)
	if err != nil {
		return err.Error(), true
	}
	return t.Root.String(), false
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func functions(t *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := t.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"tpl": func(text string, data any) (string, error) {
			c, err := t.Clone()
			if err != nil {
				return "", err
			}
			c.Funcs(functions(c))
			c, err = c.New(t.Name()).Parse(text)
			if err != nil {
				return "", err
			}
			var b strings.Builder
			err = c.Execute(&b, data)
			return b.String(), err
		},
		"dict": func(pairs ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i+1 < len(pairs); i += 2 {
				m[fmt.Sprint(pairs[i])] = pairs[i+1]
			}
			return m
		},
		"set": func(m map[string]any, key string, value any) map[string]any {
			m[key] = value
			return m
		},
		"hasKey": func(m map[string]any, key string) bool {
			_, ok := m[key]
			return ok
		},
		"list":      func(items ...any) []any { return items },
		"strings":   func(items ...string) []string { return items },
		"stringMap": func(k, v string) map[string]string { return map[string]string{k: v} },
		"ints":      func(items ...int) []int { return items },
		"bytes":     func(s string) []byte { return []byte(s) },
		"int64":     func(n int) int64 { return int64(n) },
		"uint8":     func(n int) uint8 { return uint8(n) },
		"uint64":    func(n int) uint64 { return uint64(n) },
		"float64":   func(f float64) float64 { return f },
		"float32":   func(f float64) float32 { return float32(f) },
		"add": func(items ...int64) (n int64) {
			for _, i := range items {
				n += i
			}
			return n
		},
		"isTrue":  func(b bool) bool { return b },
		"upper":   strings.ToUpper,
		"repeat":  func(n int, s string) string { return strings.Repeat(s, n) },
		"join":    func(sep string, items []string) string { return strings.Join(items, sep) },
		"first":   func(items []any) any { return items[0] },
		"none":    func() any { return nil },
		"nilMap":  func() map[string]any { return nil },
		"nilList": func() []any { return nil },
		"values":  func() Values { return Values{"a": "A", "m": map[string]any{"b": 1.5}} },
		"fail":    func(message string) (string, error) { return "", errors.New(message) },
		"any":     func(v any) any { return v },
		"typeOf":  func(v any) string { return fmt.Sprintf("%T", v) },
		"echo":    func(v any) any { return v },
		"makemap": func(items ...string) map[string]string {
			return map[string]string{items[0]: items[1], items[2]: items[3]}
		},
		"mapOfThree": func() any { return map[string]int{"three": 3} },
		"zeroArgs":   func() string { return "zeroArgs" },
		"oneArg":     func(a string) string { return "oneArg=" + a },
		"twoArgs":    func(a, b string) string { return "twoArgs=" + a + b },
		"dddArg":     func(a int, b ...string) string { return fmt.Sprintln(a, b) },
		"die":        func() bool { panic("die") },
		"version":    func() *Version { return &Version{"v1.29.3", 1, 29} },
		"struct":     func() Version { return Version{"v1", 1, 29} },
		"holder":     func() *Holder { return &Holder{Version: Version{"v2", 2, 0}} },
		"duration":   func(n int64) Duration { return Duration(n) },
		"func": func() func(int, ...string) string {
			return func(n int, items ...string) string { return fmt.Sprint(n, items) }
		},
	}
}

// Values is a defined map type with a method, as Helm's.
type Values map[string]any

func (v Values) Table(name string) (Values, error) {
	m, ok := v[name].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%q is not a table", name)
	}
	return Values(m), nil
}

func (v Values) Len() int { return len(v) }

// Version is a struct whose text only its pointer has, as Helm's KubeVersion.
type Version struct {
	Text  string
	Major int
	Minor int64
}

func (v *Version) String() string { return "version " + v.Text }

func (v *Version) Compare(major int) int { return v.Major - major }

// Holder holds one by value.
type Holder struct {
	Version Version
	Any     any
}

// Duration is a defined number with a text.
type Duration int64

func (d Duration) String() string { return fmt.Sprintf("%dns", int64(d)) }
