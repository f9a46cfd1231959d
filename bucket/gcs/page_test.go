package gcs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
)

// What is taken for a page is one for encoding/json too, with the same objects.
func FuzzPage(f *testing.F) {
	for _, s := range []string{"", "{}", "null", "[]", `{"kind":"storage#objects"}`, `{"kind":"storage#objects"} x`, `{"kind":"storage#objects","nextPageToken":"t","items":[]}`,
		`{"kind":"storage#objects","items":[{"name":"a","etag":"e","size":"1","generation":"2"},{"name":"b","etag":"e","size":"0","generation":"3"}]}`,
		`{"items":[{"name":"a","etag":"e","size":"1","generation":"2"}],"odd":[{}],"kind":"storage#objects"}`,
		`{"kind":"storage#objects","items":[null]}`, `{"items":[`, `{"items":{}}`, `{"kind":"storage#objects","items":[],"items":[]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readPage(strings.NewReader(text), &bucket.Vault{})
		if err != nil {
			if len(err.Error()) > 2<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		var want []item
		all := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if items, ok := all["items"]; ok {
			if err := json.Unmarshal(items, &want); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
		if len(want) != len(p.Objects) {
			t.Fatalf("%q: %+v", text, p)
		}
		for i, o := range p.Objects {
			if o.Key == "" || o.Key != want[i].Name || o.ETag == "" || o.Size < 0 || o.Version == "" || o.Version == "0" {
				t.Errorf("%q: %+v", text, o)
			}
		}
	})
}
