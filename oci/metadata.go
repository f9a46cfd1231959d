package oci

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// What of the annotations of a manifest becomes metadata of an artifact, in
// bytes: names and values together.
const (
	maxAnnotation  = 4 << 10
	maxAnnotations = 64 << 10
)

// metadata returns the annotations within the bounds, and how many are not:
// those of the OCI come first, then names in their order.
func metadata(annotations map[string]string) (kept map[string]string, left int) {
	rank := func(name string) int {
		if strings.HasPrefix(name, "org.opencontainers.image.") {
			return 0
		}
		return 1
	}
	names := slices.SortedFunc(maps.Keys(annotations), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
	room := maxAnnotations
	for _, name := range names {
		size := len(name) + len(annotations[name])
		if size > maxAnnotation || size > room {
			left++
			continue
		}
		if kept == nil {
			kept = make(map[string]string)
		}
		kept[name] = annotations[name]
		room -= size
	}
	return kept, left
}
