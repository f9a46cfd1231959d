// Size counts the packages that a user of the library links.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// heavy are the prefixes of what nobody wants to pay for unasked.
var heavy = map[string][]string{
	"Kubernetes": {"k8s.io/"},
	"cloud SDKs": {"cloud.google.com/", "github.com/aws/", "github.com/Azure/", "github.com/minio/"},
}

func main() {
	for _, packages := range [][]string{{"./artifact"}, {"./source"}, {"./git"}, {"./oci"}, {"./oci/notation"}, {"./oci/cosign"}, {"./chart"}, {"./chart/index"},
		{"./bucket"}, {"./bucket/s3"}, {"./bucket/gcs"}, {"./bucket/azure"}} {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
		cmd.Dir, cmd.Stderr = "..", os.Stderr
		out, err := cmd.Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, "size:", err)
			os.Exit(1)
		}
		all := strings.Fields(string(out))
		others := count(all, func(p string) bool {
			first, _, _ := strings.Cut(p, "/")
			return strings.Contains(first, ".") && !strings.HasPrefix(p, "github.com/headgate-io/headgate")
		})
		fmt.Printf("%-28s %4d packages, %3d of other modules", strings.Join(packages, " "), len(all), others)
		for _, name := range []string{"Kubernetes", "cloud SDKs"} {
			n := count(all, func(p string) bool {
				for _, prefix := range heavy[name] {
					if strings.HasPrefix(p, prefix) {
						return true
					}
				}
				return false
			})
			fmt.Printf(", %d of %s", n, name)
		}
		fmt.Println()
	}
}

func count(all []string, is func(string) bool) (n int) {
	for _, p := range all {
		if is(p) {
			n++
		}
	}
	return n
}
