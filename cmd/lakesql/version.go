package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (see Makefile); `go install module@version` leaves it empty.
var version string

// versionText is the version that the server announces, without the program's name.
func versionText() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "dev"
}

func runVersion(s streams) int {
	fmt.Fprintf(s.out, "lakesql %s (%s, %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return 0
}
