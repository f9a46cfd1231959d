package bucket_test

import (
	"testing"
)

// The vectors of reference A4.
func TestRevision(t *testing.T) {
	d := newMemory()
	d.set("foo", memoryObject{etag: "bar"})
	d.set("bar", memoryObject{etag: "baz"})
	for want, d := range map[string]*memoryDriver{
		"5da7dfe37b54ea1d5ebffb643d67b09d888635b2fe031763fbb856ea5290fda0": d,
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": newMemory(),
	} {
		rev, err := resolve(t, d, nil)
		if err != nil || rev.ID != "sha256:"+want || rev.File != want+".tar.gz" {
			t.Errorf("%+v, %v", rev, err)
		}
	}
}
