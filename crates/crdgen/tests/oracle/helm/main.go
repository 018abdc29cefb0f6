// Command helm reads questions as tests/corpus.rs prints them, one JSON document a line, and answers each
// with a JSON line: for every spec, the error with which Helm refuses it as values of the chart, or "".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
)

type question struct {
	Schema json.RawMessage  `json:"schema"`
	Values map[string]any   `json:"values"`
	Specs  []map[string]any `json:"specs"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 256<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var q question
		must(json.Unmarshal(lines.Bytes(), &q))
		answers := []string{}
		for _, spec := range q.Specs {
			answers = append(answers, ask(q, spec))
		}
		must(out.Encode(answers))
	}
	must(lines.Err())
}

func ask(q question, spec map[string]any) string {
	c := &chart.Chart{Metadata: &chart.Metadata{Name: "chart", APIVersion: "v2", Version: "1.0.0"}, Values: q.Values}
	values, err := util.CoalesceValues(c, spec)
	if err != nil {
		return err.Error()
	}
	if err := util.ValidateAgainstSingleSchema(common.Values(values), q.Schema); err != nil {
		return err.Error()
	}
	return ""
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
