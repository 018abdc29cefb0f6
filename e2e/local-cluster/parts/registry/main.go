// The registry of distribution, without the drivers of clouds, which are most of what its own main builds.
package main

import (
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/auth/token"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	// It exits by itself when a command fails.
	_ = registry.RootCmd.Execute()
}
