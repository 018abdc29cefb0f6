// Command bench takes the time of Helm's own engine: for each chart folder given, one JSON object a line with the
// fastest of many rounds, in nanoseconds. `make bench-engine` compares ours with it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// How long each figure is measured, and how often at least.
const (
	period = 3 * time.Second
	rounds = 5
)

type figures struct {
	Chart string `json:"chart"`
	// Reading the folder, resolving dependencies and all that Whole has.
	Cold int64 `json:"cold"`
	// Merging values, parsing and executing the templates, sorting what comes out, with the chart at hand.
	Whole int64 `json:"whole"`
	// Parsing and executing alone: `engine.Render`, with chart and merged values at hand.
	Render int64 `json:"render"`
	// Bytes of output.
	Output int `json:"output"`
}

func main() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, folder := range os.Args[1:] {
		line, err := json.Marshal(measure(folder))
		check(err)
		fmt.Println(string(line))
	}
}

func measure(folder string) figures {
	f := figures{Chart: folder}
	c := load(folder)
	values := merge(c)
	for _, text := range render(c, values) {
		f.Output += len(text)
	}
	f.Render = fastest(func() { render(c, values) })
	f.Whole = fastest(func() { sort(render(c, merge(c))) })
	f.Cold = fastest(func() {
		c := load(folder)
		sort(render(c, merge(c)))
	})
	return f
}

func load(folder string) *chart.Chart {
	c, err := loader.LoadDir(folder)
	check(err)
	check(chartutil.ProcessDependencies(c, map[string]any{}))
	return c
}

func merge(c *chart.Chart) common.Values {
	release := common.ReleaseOptions{Name: "bench", Namespace: "default", Revision: 1, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	values, err := util.ToRenderValuesWithSchemaValidation(c, map[string]any{}, release, capabilities, false)
	check(err)
	return values
}

func render(c *chart.Chart, values common.Values) map[string]string {
	files, err := engine.Render(c, values)
	check(err)
	return files
}

func sort(files map[string]string) {
	for path := range files {
		if strings.HasSuffix(path, "NOTES.txt") {
			delete(files, path)
		}
	}
	_, _, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	check(err)
}

func fastest(run func()) int64 {
	best := time.Duration(1<<63 - 1)
	end := time.Now().Add(period)
	for i := 0; i < rounds || time.Now().Before(end); i++ {
		start := time.Now()
		run()
		best = min(best, time.Since(start))
	}
	return best.Nanoseconds()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
