package oracle

import (
	"errors"
	"fmt"
)

// T has the fields and methods that Go's own table of execution tests (src/text/template/exec_test.go) uses and that templates of Helm can have as well.
type T struct {
	True              bool
	I                 int
	U16               uint16
	X, S              string
	FloatZero         float64
	U                 *U
	MSI               map[string]int
	MSIone            map[string]int
	MSIEmpty          map[string]int
	SMSI              []map[string]int
	SI                []int
	SICap             []int
	SIEmpty           []int
	SB                []bool
	SS                []string
	Empty0, Empty1    any
	Empty2, Empty3    any
	NonEmptyInterface any
	NilInterface      any
	BinaryFunc        func(string, string) string
	VariadicFunc      func(...string) string
	VariadicFuncInt   func(int, ...string) string
	NilOKFunc         func(any) bool
	ErrFunc           func() (string, error)
	Uthree, Ufour     uint
	NegOne, Three     int
	Map, NonNilMap    map[string]int
	V1, V2            U
	Ptr               *U
	Iface1, NilIface  any
}

// U is a struct inside.
type U struct{ V string }

func value() *T {
	return &T{
		True: true, I: 17, U16: 16, X: "x", S: "xyz", U: &U{"v"},
		MSI: map[string]int{"one": 1, "two": 2, "three": 3}, MSIone: map[string]int{"one": 1}, MSIEmpty: map[string]int{},
		SMSI: []map[string]int{{"one": 1, "two": 2}, {"eleven": 11, "twelve": 12}},
		SI:   []int{3, 4, 5}, SICap: make([]int, 5, 5), SIEmpty: []int{}, SB: []bool{true, false}, SS: []string{"a", "b"},
		Empty1: 3, Empty2: "empty2", Empty3: []int{7, 8},
		NonEmptyInterface: &U{"ui"},
		BinaryFunc:        func(a, b string) string { return fmt.Sprintf("[%s=%s]", a, b) },
		VariadicFunc:      func(s ...string) string { return fmt.Sprint("<", joined(s), ">") },
		VariadicFuncInt:   func(a int, s ...string) string { return fmt.Sprint(a, "=<", joined(s), ">") },
		NilOKFunc:         func(v any) bool { return v == nil },
		ErrFunc:           func() (string, error) { return "bla", nil },
		Uthree:            3, Ufour: 4, NegOne: -1, Three: 3, NonNilMap: map[string]int{},
		Ptr: &U{"p"}, Iface1: 1,
	}
}

func joined(s []string) (text string) {
	for i, item := range s {
		if i > 0 {
			text += "+"
		}
		text += item
	}
	return text
}

func (t *T) Method0() string                { return "M0" }
func (t *T) Method1(a int) int              { return a }
func (t *T) Method2(a int, b string) string { return fmt.Sprintf("Method2: %d %s", a, b) }
func (t *T) Method3(v any) string           { return fmt.Sprintf("Method3: %v", v) }
func (t *T) MAdd(a int, b []int) []int {
	v := make([]int, len(b))
	for i, x := range b {
		v[i] = x + a
	}
	return v
}
func (t *T) GetU() *U { return t.U }
func (u *U) TrueFalse(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// MyError fails if told to.
func (t *T) MyError(fails bool) (bool, error) {
	if fails {
		return true, errors.New("my error")
	}
	return false, nil
}
