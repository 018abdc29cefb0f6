// Command judge says what Helm says of values, many a second: `helm template --values` without starting a program and
// without templates, so that only merging and the schemas can refuse. `make schema-parity` asks it.
//
// Each line of its input is a question, each line of its output an answer: `{"chart": "<folder>"}` takes another chart,
// `{"values": {…}}` asks about values for it. An answer is `{}`, or `{"refused": "<why>"}`.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

type question struct {
	Chart  string          `json:"chart"`
	Values json.RawMessage `json:"values"`
}

type answer struct {
	Refused string `json:"refused,omitempty"`
}

func main() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	var files []*archive.BufferedFile
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		check(err)
		var asked question
		check(json.Unmarshal(line, &asked))
		if asked.Chart != "" {
			files, err = read(asked.Chart)
		} else {
			err = judge(files, asked.Values)
		}
		var said answer
		if err != nil {
			said.Refused = err.Error()
		}
		check(answers.Encode(said))
	}
}

// read takes a chart's files without the templates.
func read(folder string) ([]*archive.BufferedFile, error) {
	c, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []*archive.BufferedFile
	for _, file := range c.Raw {
		if !bytes.HasPrefix([]byte(file.Name), []byte("templates/")) {
			files = append(files, &archive.BufferedFile{Name: file.Name, Data: file.Data})
		}
	}
	return files, nil
}

// judge works on a chart of its own: resolving dependencies changes it.
func judge(files []*archive.BufferedFile, text []byte) error {
	var c *chart.Chart
	c, err := loader.LoadFiles(files)
	if err != nil {
		return err
	}
	values, err := loader.LoadValues(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return err
	}
	release := common.ReleaseOptions{Name: "parity", Namespace: "default", Revision: 1, IsInstall: true}
	_, err = util.ToRenderValuesWithSchemaValidation(c, values, release, common.DefaultCapabilities.Copy(), false)
	return err
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
