// Command functions prints what Helm's template functions answer, for the vectors in ../../vectors/functions.
//
// A vector file holds snippets, each followed by its expectation; the expectation is rewritten in place, so a new
// case is added by writing its snippet alone:
//
//	{{ trunc 3 "abcdef" }}
//	=> "abc"
//	{{ trunc "x" "abcdef" }}
//	!! "template: vector:1:9: executing ..."
//
// A file called names.list gets the names of all functions instead.
//
// Output and errors are quoted as Go quotes strings. Snippets see .Values (values.yaml beside the vectors) and
// .Release, as they would in a chart. Lines that are neither are comments and kept.
package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	_ "unsafe" // go:linkname

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/engine"
)

// initFunMap registers Helm's functions on a template. It is not exported, and going through Engine.Render would
// rewrite the errors and delete "<no value>", which are not the functions' doing.
//
//go:linkname initFunMap helm.sh/helm/v4/pkg/engine.Engine.initFunMap
func initFunMap(e engine.Engine, ctx context.Context, t *template.Template)

// funcMap is the list of Helm's functions, without those that text/template brings along.
//
//go:linkname funcMap helm.sh/helm/v4/pkg/engine.funcMap
func funcMap() template.FuncMap

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: functions VALUES_FILE VECTOR_FILE...")
		os.Exit(2)
	}
	values, err := os.ReadFile(os.Args[1])
	check(err)
	for _, path := range os.Args[2:] {
		if filepath.Base(path) == "names.list" {
			names := slices.Sorted(maps.Keys(funcMap()))
			check(os.WriteFile(path, []byte(strings.Join(names, "\n")+"\n"), 0o644))
			continue
		}
		text, err := os.ReadFile(path)
		check(err)
		check(os.WriteFile(path, reprint(text, values), 0o644))
	}
}

func reprint(text, values []byte) []byte {
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "=> ") || strings.HasPrefix(line, "!! ") {
			continue
		}
		fmt.Fprintln(&out, line)
		if strings.Contains(line, "{{") && !strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, answer(line, values))
		}
	}
	return out.Bytes()
}

// answer renders one snippet with values of its own, because snippets may change them.
func answer(snippet string, values []byte) (line string) {
	defer func() {
		if r := recover(); r != nil {
			line = "!! " + strconv.Quote(fmt.Sprint(r))
		}
	}()
	table, err := common.ReadValues(values)
	check(err)
	t := template.New("gotpl").Option("missingkey=zero")
	initFunMap(engine.Engine{}, context.Background(), t)
	t, err = t.New("vector").Parse(snippet)
	if err != nil {
		return "!! " + strconv.Quote(err.Error())
	}
	data := common.Values{
		"Values":  table,
		"Release": map[string]any{"Name": "demo", "Namespace": "prod", "Revision": 1, "IsInstall": true, "Service": "Helm"},
	}
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil {
		return "!! " + strconv.Quote(err.Error())
	}
	return "=> " + strconv.Quote(out.String())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
