// Command conversions prints what Go makes of YAML, JSON, TOML, versions and constraints, for the vectors in
// ../../vectors/conversions.
//
// A vector is a line with an operation and its quoted input, followed by its expectation, which is rewritten in place;
// so a new case is added by writing its first line alone:
//
//	parse "a: yes"
//	=> "{\"a\":true}"
//	parse "a: b: c"
//	!! "error converting YAML to JSON: ..."
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

func main() {
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		check(err)
		check(os.WriteFile(path, reprint(string(text)), 0o644))
	}
}

func reprint(text string) []byte {
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "=> ") || strings.HasPrefix(line, "!! ") {
			continue
		}
		fmt.Fprintln(&out, line)
		op, quoted, isVector := strings.Cut(line, " \"")
		if !isVector || strings.HasPrefix(line, "#") {
			continue
		}
		input, err := strconv.Unquote("\"" + quoted)
		check(err)
		if result, err := run(op, []byte(input)); err != nil {
			fmt.Fprintln(&out, "!!", strconv.Quote(err.Error()))
		} else {
			fmt.Fprintln(&out, "=>", strconv.Quote(string(result)))
		}
	}
	return out.Bytes()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// number decodes JSON as a template would have it: integers are int64.
func number(in []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return typed(v), err
}

// JSON integers become int64 and uint64, as template values would be.
func typed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = typed(x)
		}
		return v
	case []any:
		for i, x := range v {
			v[i] = typed(x)
		}
		return v
	case json.Number:
		if i, err := v.Int64(); err == nil && v.String() != "-0" {
			return i
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

func run(op string, in []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	switch op {
	case "parse":
		var v any
		if err := yaml.Unmarshal(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "parsemap":
		v := map[string]any{}
		if err := yaml.Unmarshal(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "parselist":
		v := []any{}
		if err := yaml.Unmarshal(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "tojson":
		out, err := yaml.YAMLToJSON(in)
		if err != nil {
			err = fmt.Errorf("error converting YAML to JSON: %w", err)
		}
		return out, err
	case "strict":
		var v any
		if err := yaml.UnmarshalStrict(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "toyaml":
		v, err := number(in)
		if err != nil {
			return nil, err
		}
		out, err := yaml.Marshal(v)
		return bytes.TrimSuffix(out, []byte("\n")), err
	case "pretty":
		v, err := number(in)
		if err != nil {
			return nil, err
		}
		var data bytes.Buffer
		e := goyaml.NewEncoder(&data)
		e.SetIndent(2)
		err = e.Encode(v)
		return bytes.TrimSuffix(data.Bytes(), []byte("\n")), err
	case "totoml":
		v, err := number(in)
		if err != nil {
			return nil, err
		}
		var data bytes.Buffer
		err = toml.NewEncoder(&data).Encode(v)
		return data.Bytes(), err
	case "fromjson":
		v := map[string]any{}
		if err := json.Unmarshal(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "fromjsonarray":
		v := []any{}
		if err := json.Unmarshal(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "fromjsonany":
		var v any
		if err := json.Unmarshal(in, &v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "version":
		v, err := semver.NewVersion(string(in))
		if err != nil {
			return nil, err
		}
		return []byte(fmt.Sprintf("%s %d %d %d %q %q %s %s %s", v, v.Major(), v.Minor(), v.Patch(), v.Prerelease(), v.Metadata(), v.IncMajor(), v.IncMinor(), v.IncPatch())), nil
	case "strictversion":
		v, err := semver.StrictNewVersion(string(in))
		if err != nil {
			return nil, err
		}
		return []byte(v.String()), nil
	case "compare":
		a, b, _ := strings.Cut(string(in), "\n")
		v, err := semver.NewVersion(a)
		if err != nil {
			return nil, err
		}
		w, err := semver.NewVersion(b)
		if err != nil {
			return nil, err
		}
		return []byte(fmt.Sprint(v.Compare(w))), nil
	case "constraint":
		a, b, _ := strings.Cut(string(in), "\n")
		c, err := semver.NewConstraint(a)
		if err != nil {
			return nil, err
		}
		v, err := semver.NewVersion(b)
		if err != nil {
			return nil, err
		}
		return []byte(fmt.Sprint(c.Check(v))), nil
	}
	return nil, fmt.Errorf("unknown op %s", op)
}
