// Prints golden.jsonl: what Helm makes of the charts and values in cases/*.txt. Each case is a list of files under
// headings `-- path --`; `user.yaml` holds the user's values.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

type outcome struct {
	Case     string         `json:"case"`
	Error    string         `json:"error,omitempty"`
	Charts   []string       `json:"charts,omitempty"`
	Defaults map[string]any `json:"defaults,omitempty"`
	Values   map[string]any `json:"values,omitempty"`
}

func files(text string) (files []*archive.BufferedFile, user string) {
	var current *archive.BufferedFile
	for _, line := range strings.SplitAfter(text, "\n") {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			current = &archive.BufferedFile{Name: strings.TrimSuffix(strings.TrimSpace(name), " --")}
			files = append(files, current)
		} else if current != nil {
			current.Data = append(current.Data, line...)
		}
	}
	var rest []*archive.BufferedFile
	for _, f := range files {
		if f.Name == "user.yaml" {
			user = string(f.Data)
		} else {
			rest = append(rest, f)
		}
	}
	return rest, user
}

func tree(c *chart.Chart) (all []string) {
	deps, _ := json.Marshal(c.Metadata.Dependencies)
	all = append(all, c.ChartFullPath()+" "+string(deps))
	// Undeclared subcharts come in random order.
	subs := c.Dependencies()
	if c.Metadata.Dependencies == nil {
		sort.Slice(subs, func(i, j int) bool { return subs[i].Name() < subs[j].Name() })
	}
	for _, sub := range subs {
		all = append(all, tree(sub)...)
	}
	return all
}

func run(path string) (o outcome) {
	o.Case = strings.TrimSuffix(filepath.Base(path), ".txt")
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	fs, user := files(string(text))
	c, err := loader.LoadFiles(fs)
	if err != nil {
		o.Error = err.Error()
		return o
	}
	vals, err := loader.LoadValues(strings.NewReader(user))
	if err != nil {
		o.Error = err.Error()
		return o
	}
	if err := chartutil.ProcessDependencies(c, vals); err != nil {
		o.Error = err.Error()
		return o
	}
	top, err := util.ToRenderValuesWithSchemaValidation(c, vals, common.ReleaseOptions{}, nil, false)
	if err != nil {
		o.Error = err.Error()
		return o
	}
	o.Charts = tree(c)
	o.Defaults = c.Values
	o.Values = top["Values"].(common.Values)
	return o
}

func main() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	paths, _ := filepath.Glob("resolve/cases/*.txt")
	sort.Strings(paths)
	for _, path := range paths {
		line, err := json.Marshal(run(path))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
