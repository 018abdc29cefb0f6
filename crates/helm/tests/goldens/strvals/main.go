// Prints golden.jsonl: what Helm's own parser of --set and its relatives makes of each assignment.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"
)

type row struct {
	Kind  string   `json:"kind"`
	In    []string `json:"in"`
	Out   any      `json:"out,omitempty"`
	Error string   `json:"error,omitempty"`
}

func read(path []rune) (any, error) {
	if string(path) == "missing" {
		return nil, errors.New("open missing: no such file")
	}
	return "<" + string(path) + ">", nil
}

func apply(kind, text string, into map[string]any) error {
	switch kind {
	case "set":
		return strvals.ParseInto(text, into)
	case "string":
		return strvals.ParseIntoString(text, into)
	case "json":
		return strvals.ParseJSON(text, into)
	case "file":
		return strvals.ParseIntoFile(text, into, read)
	default:
		return strvals.ParseLiteralInto(text, into)
	}
}

func main() {
	deep := strings.Repeat("a.", 29)
	assignments := [][]string{
		{""}, {"a=b"}, {"a=1"}, {"a=1000000"}, {"a=1.5"}, {"a=0"}, {"a=00"}, {"a=0755"}, {"a=-5"}, {"a=+5"}, {"a=-0"},
		{"a=9223372036854775807"}, {"a=9223372036854775808"}, {"a=true"}, {"a=TRUE"}, {"a=False"}, {"a=null"}, {"a=NULL"},
		{"a=yes"}, {"a=0x10"}, {"a=1e3"}, {"a=1_000"}, {"a= 1"}, {"a=b c"}, {"a="}, {"a=,b="}, {"a=,b=1"}, {"a"}, {"a,b"}, {"a,"}, {"a=1,b"},
		{"a=1,b=2"}, {"a=1,,b=2"}, {"a=1,"}, {",a=1"}, {"=1"}, {"=1,a=2"}, {".a=1"}, {"a.=1"}, {"a..b=1"}, {"a.b"}, {"a.b=1"}, {"a.b=1,a.c=2"},
		{"a.b=1,a=2"}, {"a=2,a.b=1"}, {"a=null,a.b=1"}, {"a=true,a.b=1"}, {"a=x,a[0]=1"}, {"a=1,a[0]=1"}, {"a.b=1,a[0]=1"}, {"a[0]=1,a.b=1"},
		{"a=null,a[0]=1"}, {"a\\.b=1"}, {"a\\,b=1"}, {"a\\=b=1"}, {"a=b\\,c"}, {"a=b\\\\c"}, {"a=b\\"}, {"a\\"}, {"a\\[0\\]=1"}, {"a=b=c"}, {"a=b.c"},
		{"a={}"}, {"a={b}"}, {"a={b,c}"}, {"a={1,true,null,x}"}, {"a={b,c},d=1"}, {"a={b,c}d=1"}, {"a={b"}, {"a={b,"}, {"a={b\\,c,d}"},
		{"a={{b}}"}, {"a= {b}"}, {"a={b},"}, {"a={,}"}, {"a=}"}, {"a.b={1,2}"},
		{"a[0]=1"}, {"a[2]=1"}, {"a[0]=1,a[1]=2"}, {"a[1]=1,a[0]=2"}, {"a[0]="}, {"a[0]"}, {"a[0"}, {"a["}, {"a[]=1"}, {"a[x]=1"}, {"a[-1]=1"},
		{"a[+1]=1"}, {"a[1.0]=1"}, {"a[65536]=1,a={}"}, {"a[65537]=1"}, {"a[99999999999999999999]=1"}, {"a[0]x=1"}, {"a[0]x.y=1"}, {"a[0]é\n'=1"},
		{"a[0].b=1"}, {"a[0].b=1,a[0].c=2"}, {"a[1].b=1"}, {"a[1].b=1,a[0].b=2"}, {"a[0].b="}, {"a[0].b=1,a[0].c="}, {"a[0].b"}, {"a[0].=1"}, {"a[0]=x,a[0].b=1"},
		{"a[0][0]=1"}, {"a[0][1]=1,a[0][0]=2"}, {"a[1][0].b=1"}, {"a[0].b[1].c[0]=1"}, {"a[0]=1,a[0][0]=2"}, {"a[0][x]=1"}, {"a[0]["}, {"a[0][-1]=1"}, {"a[0]={1,2},a[0][3]=x"},
		{"a[0]={b,c}"}, {"a[0]={b"}, {"[0]=1"}, {"a.[0]=1"}, {"a[0],b=1"}, {"a[1].b=1,a[1][0]=2"}, {"a[0].b[0]=1,a[0].b=x"},
		{deep + "b=1"}, {deep + "a.b=1"}, {deep + "a.a.b=1"}, {"a[0]." + deep + "b=1"},
		{"a=1", "b=2"}, {"a.b=1", "a.c=2"}, {"a={1,2,3}", "a[1]=x"}, {"a.b=1", "a=null"}, {"a=é", "é=a"}, {"a='b'"}, {"a=\"b\""}, {"a=b\nc"},
		{"a=<b>&"}, {"a={b} ,c=1"}, {"a.b.c.d=1,a.b.c.e=2,a.b.f={x}"}, {"a[0].b.c=1,a[0].b.d=2"}, {"a[3]=1"}, {"a=1\\,b\\=2"}, {"a b=1"}, {" a=1"}, {"a =1"},
	}
	json_ := [][]string{
		{"a=1"}, {"a=1.5"}, {"a=1000000"}, {"a=\"x\""}, {"a=x"}, {"a=null"}, {"a="}, {"a=,b=1"}, {"a=1,b=2"}, {"a=1 , b=2"}, {"a=1,  b=2"}, {"a={}"}, {"a=[]"},
		{"a={\"b\":1},c=[1,2,{\"d\":null}]"}, {"a={\"b\":1"}, {"a=[1,2"}, {"a={\"b\":1}", "a.c=2"}, {"a.b={\"c\":1}"}, {"a[0]={\"b\":1}"}, {"a[1]=1,a[0]=2"}, {"a[0]="}, {"a[0]=,b=1"},
		{"a"}, {"a=true,b=false"}, {"a= 1"}, {"a=\"x,y\",b=1"}, {"a=1b=2"}, {"a=\"x\"b=2"}, {"a[0].b=[1]"}, {"a=1,"}, {"a=1e3"}, {"a=01"}, {"a=\"\\u003c\""}, {"a=nul"}, {"a={'b':1}"},
		{"a=  "}, {"a=[1,2] b=3"}, {"a=-0"}, {"a=12345678901234567890"},
	}
	out := json.NewEncoder(os.Stdout)
	print := func(kind string, all [][]string) {
		for _, in := range all {
			into := map[string]any{}
			r := row{Kind: kind, In: in}
			for _, text := range in {
				if err := apply(kind, text, into); err != nil {
					r.Error = err.Error()
					break
				}
			}
			if r.Error == "" {
				r.Out = into
			}
			if err := out.Encode(r); err != nil {
				panic(err)
			}
		}
	}
	for _, kind := range []string{"set", "string", "file", "literal"} {
		print(kind, assignments)
	}
	print("file", [][]string{{"a=missing"}, {"a=x,b=missing"}, {"a={x,missing}"}, {"a[0]=missing"}})
	print("json", json_)
}
