// Command crd reads CustomResourceDefinitions, one JSON document a line, and answers each with a JSON line:
// the errors with which an API server refuses it, and, for a line {"crd": …, "version": "v1-0-0",
// "objects": […]}, what it makes of each object: pruned, defaulted, and the errors of its validation.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

type question struct {
	CRD     json.RawMessage   `json:"crd"`
	Version string            `json:"version"`
	Objects []json.RawMessage `json:"objects"`
}

type answer struct {
	Errors  []string `json:"errors"`
	Objects []object `json:"objects,omitempty"`
}

type object struct {
	Object any      `json:"object"`
	Errors []string `json:"errors"`
}

func main() {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var q question
		must(json.Unmarshal(lines.Bytes(), &q))
		must(out.Encode(ask(scheme, q)))
	}
	must(lines.Err())
}

func ask(scheme *runtime.Scheme, q question) answer {
	var external v1.CustomResourceDefinition
	if err := utiljson.Unmarshal(q.CRD, &external); err != nil {
		return answer{Errors: []string{err.Error()}}
	}
	scheme.Default(&external)
	for _, version := range external.Spec.Versions {
		if version.Storage {
			external.Status.StoredVersions = append(external.Status.StoredVersions, version.Name)
		}
	}
	var crd apiextensions.CustomResourceDefinition
	must(scheme.Convert(&external, &crd, nil))
	result := answer{Errors: []string{}}
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), &crd) {
		result.Errors = append(result.Errors, err.Error())
	}
	if len(result.Errors) > 0 || len(q.Objects) == 0 {
		return result
	}
	props, err := apiextensions.GetSchemaForVersion(&crd, q.Version)
	must(err)
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	must(err)
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	must(err)
	for _, raw := range q.Objects {
		var given map[string]any
		must(utiljson.Unmarshal(raw, &given))
		unknown := pruning.PruneWithOptions(given, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		defaulting.PruneNonNullableNullsWithoutDefaults(given, structural)
		defaulting.Default(given, structural)
		answered := object{Object: given, Errors: []string{}}
		for _, path := range unknown {
			answered.Errors = append(answered.Errors, "unknown field "+path)
		}
		for _, err := range validation.ValidateCustomResource(nil, given, validator) {
			answered.Errors = append(answered.Errors, err.Error())
		}
		for _, err := range listtype.ValidateListSetsAndMaps(nil, structural, given) {
			answered.Errors = append(answered.Errors, err.Error())
		}
		result.Objects = append(result.Objects, answered)
	}
	return result
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
