module local-cluster/parts/pause

go 1.26.0
