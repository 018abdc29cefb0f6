// Command bench takes the time of Helm's own engine: for each chart folder given, one JSON object a line with the
// mean of many rounds, in nanoseconds of all processors: collecting garbage is part of it. `make bench-engine` compares ours with it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"syscall"
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
	period = time.Second
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
	f.Render = mean(func() { render(c, values) })
	f.Whole = mean(func() { sort(render(c, merge(c))) })
	f.Cold = mean(func() {
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

func mean(run func()) int64 {
	start := processorTime()
	for round := int64(1); ; round++ {
		run()
		taken := processorTime() - start
		if round >= rounds && taken >= int64(period) {
			return taken / round
		}
	}
}

// What this process has taken of all processors.
func processorTime() int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
