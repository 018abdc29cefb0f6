// Its presence lets main.go declare a function without a body, for go:linkname.
