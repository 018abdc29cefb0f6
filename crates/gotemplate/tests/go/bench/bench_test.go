// Package bench renders the templates of benches/chart with Go's engine: go test -bench . ./bench
package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"text/template"
)

func read(b *testing.B, name string) string {
	text, err := os.ReadFile("../../../benches/chart/" + name)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

func parse(b *testing.B, helpers, deployment string) *template.Template {
	t := template.New("gotpl").Option("missingkey=zero")
	t.Funcs(functions(t))
	for name, text := range map[string]string{"_helpers.tpl": helpers, "deployment.yaml": deployment} {
		if _, err := t.New(name).Parse(text); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

func BenchmarkParse(b *testing.B) {
	helpers, deployment := read(b, "_helpers.tpl"), read(b, "deployment.yaml")
	for b.Loop() {
		parse(b, helpers, deployment)
	}
}

func BenchmarkRender(b *testing.B) {
	t := parse(b, read(b, "_helpers.tpl"), read(b, "deployment.yaml"))
	var data map[string]any
	if err := json.Unmarshal([]byte(read(b, "values.json")), &data); err != nil {
		b.Fatal(err)
	}
	var out strings.Builder
	for b.Loop() {
		out.Reset()
		if err := t.ExecuteTemplate(&out, "deployment.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
	if path := os.Getenv("OUT"); path != "" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// As sprig and Helm write them.
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
			if c, err = c.New(t.Name()).Parse(text); err != nil {
				return "", err
			}
			var b strings.Builder
			err = c.Execute(&b, data)
			return strings.ReplaceAll(b.String(), "<no value>", ""), err
		},
		"dict": func(pairs ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i+1 < len(pairs); i += 2 {
				m[pairs[i].(string)] = pairs[i+1]
			}
			return m
		},
		"default": func(d any, given ...any) any {
			if len(given) == 0 || given[0] == nil {
				return d
			}
			if truth, _ := template.IsTrue(given[0]); reflect.ValueOf(given[0]).Kind() != reflect.Struct && !truth {
				return d
			}
			return given[0]
		},
		"trunc": func(n int, s string) string {
			if len(s) > n {
				return s[:n]
			}
			return s
		},
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"quote": func(items ...any) string {
			var out []string
			for _, item := range items {
				if item != nil {
					out = append(out, fmt.Sprintf("%q", fmt.Sprint(item)))
				}
			}
			return strings.Join(out, " ")
		},
		"nindent": func(n int, s string) string {
			pad := strings.Repeat(" ", n)
			return "\n" + pad + strings.ReplaceAll(s, "\n", "\n"+pad)
		},
	}
}
