package tester

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
)

const ofFlagger = `{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469","metadata":{"type":"cmd","cmd":"hey -z 1m http://x/"}}`

// What controllers send is read without encoding/json; what is not like that is left to it.
func TestPlain(t *testing.T) {
	for text, want := range map[string]bool{
		ofFlagger: true,
		`{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469"}`: true,
		`{"name":"a","namespace":"b"}`:         true,
		`{"Name":"a"}`:                         false,
		`{"name":"a","name":"b"}`:              false,
		`{"name":"a","more":"b"}`:              false,
		`{"name":"a\n"}`:                       false,
		`{"name":"ä"}`:                         false,
		`{"name":1}`:                           false,
		`{"name":"a"} `:                        false,
		`{"name":"a",}`:                        false,
		`{"metadata":{"a":"1","a":"2"}}`:       false,
		`{"metadata":{"a":"1"},"metadata":{}}`: false,
		`{}`:                                   false,
		`null`:                                 false,
		``:                                     false,
		`{"name":"a"`:                          false,
	} {
		var p payload
		if got := readPlain([]byte(text), &p, nil); got != want || !got && !reflect.DeepEqual(p, payload{}) {
			t.Errorf("%s: %t, %+v", text, got, p)
		}
	}
}

// It reads nothing otherwise than encoding/json.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{ofFlagger, `{"name":"a","namespace":"b"}`, `{"metadata":{"a":"1"},"metadata":{"b":"2"}}`, `{"metadata":{"gate":"a","type":"b","token":"c","type":"d"}}`, `{"name":"\u0041"}`, `{"name":"a","name":""}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, keys := range [][]string{nil, gateKeys} {
			var got, want payload
			if !readPlain(text, &got, keys) {
				continue
			}
			if err := json.Unmarshal(text, &want); err != nil {
				t.Errorf("%q: %+v, encoding/json %v", text, got, err)
			}
			if keys != nil {
				maps.DeleteFunc(want.Metadata, func(key, _ string) bool { return !slices.Contains(keys, key) })
			}
			if !maps.Equal(got.Metadata, want.Metadata) {
				t.Errorf("%q: metadata of %q are %q, encoding/json %q", text, keys, got.Metadata, want.Metadata)
			}
			if got.Metadata, want.Metadata = nil, nil; !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %+v, encoding/json %+v", text, got, want)
			}
		}
	})
}
