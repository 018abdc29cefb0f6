// Pause keeps the namespaces of a pod: it waits to be told to end and, as the first process of a pod that
// shares its process namespace, reaps the processes that lost their parent.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for signal := range signals {
		if signal != syscall.SIGCHLD {
			return
		}
		for {
			if child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); child <= 0 || err != nil {
				break
			}
		}
	}
}
