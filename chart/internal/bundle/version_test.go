package bundle_test

import (
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

func TestStamp(t *testing.T) {
	for _, c := range []struct{ version, metadata, want string }{
		{"1.2.3", "abc", "1.2.3+abc"},
		{"v1.2.3", "abc", "1.2.3+abc"},
		{"1.2.3+old", "new", "1.2.3+new"},
		{"1.2.3-rc.1+old", "0123456789ab.7", "1.2.3-rc.1+0123456789ab.7"},
		{"1.2", "1", "1.2.0+1"},
		{"1", "1", "1.0.0+1"},
		{"1.2.3+old", "", "1.2.3"},
		{"1.2.3", "a b", ""},
		{"1.2.3", "a/b", ""},
		{"", "a", ""},
		{"1.2.3\n", "a", ""},
		{"latest", "a", ""},
	} {
		got, err := bundle.Stamp(c.version, c.metadata)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("Stamp(%q, %q) = %q, %v, want %q", c.version, c.metadata, got, err, c.want)
		}
	}
}

func TestTheVersionIsReplacedWhereItStands(t *testing.T) {
	const v = "1.0.0+abc"
	head := "apiVersion: v2\nname: a\n"
	for name, c := range map[string]struct{ text, want string }{
		"plain":                   {head + "version: 1.0.0\n", head + "version: " + v + "\n"},
		"without a line end":      {head + "version: 1.0.0", head + "version: " + v},
		"comments":                {"# one\n" + head + "version: 1.0.0   # two\n# three\n", "# one\n" + head + "version: " + v + "   # two\n# three\n"},
		"double quotes":           {head + `version: "1.0.0" # x`, head + `version: "` + v + `" # x`},
		"single quotes":           {head + `version: '1.0.0' # x`, head + `version: '` + v + `' # x`},
		"a quoted key":            {head + `"version" : 1.0.0`, head + `"version" : ` + v},
		"flow style":              {"{apiVersion: v2, name: a, version: 1.0.0, description: x}", "apiVersion: v2\ndescription: x\nname: a\nversion: 1.0.0+abc\n"},
		"JSON":                    {`{"apiVersion":"v2","name":"a","version":"1.0.0"}`, "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"on the next line":        {head + "version:\n  1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"an explicit key":         {"? version\n: 1.0.0\n? apiVersion\n: v2\n? name\n: a\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"line ends of Windows":    {"apiVersion: v2\r\nname: a\r\nversion: 1.0.0\r\nhome: x\r\n", "apiVersion: v2\r\nname: a\r\nversion: " + v + "\r\nhome: x\r\n"},
		"a byte order mark":       {"\xef\xbb\xbfversion: 1.0.0\n" + head, "\xef\xbb\xbfversion: " + v + "\n" + head},
		"a nested one before":     {"dependencies: [{name: b, version: 1.0.0, repository: x}]\n" + head + "version: 1.0.0\n", "dependencies: [{name: b, version: 1.0.0, repository: x}]\n" + head + "version: " + v + "\n"},
		"appVersion is the same":  {"appVersion: 1.0.0\n" + head + "version: 1.0.0\n", "appVersion: 1.0.0\n" + head + "version: " + v + "\n"},
		"twice, the last counts":  {head + "version: 0.9.0\nversion: 1.0.0\n", head + "version: " + v + "\nversion: " + v + "\n"},
		"an anchor nobody uses":   {head + "version: &v 1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"a tag":                   {head + "version: !!str 1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"an alias":                {"annotations: {x: &v 1.0.0}\n" + head + "version: *v\n", "annotations:\n  x: 1.0.0\napiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"an anchor that is used":  {"version: &v 1.0.0\nappVersion: *v\n" + head, "apiVersion: v2\nappVersion: 1.0.0\nname: a\nversion: 1.0.0+abc\n"},
		"a block":                 {head + "version: |-\n  1.0.0\nx: 1\n", head + "version: 1.0.0+abc\nx: 1\n"},
		"escapes":                 {head + `version: "1.0\x2e0"`, head + "version: 1.0.0+abc\n"},
		"a merged map":            {"x: &x {version: 1.0.0}\n<<: *x\n" + head, "apiVersion: v2\nname: a\nversion: 1.0.0+abc\nx:\n  version: 1.0.0\n"},
		"in upper case":           {head + "Version: 1.0.0\n", head + "version: 1.0.0+abc\n"},
		"two documents":           {head + "version: 1.0.0\n---\nversion: 1.0.0\n", head + "version: " + v + "\n---\nversion: " + v + "\n"},
		"a directive":             {"%YAML 1.1\n---\n" + head + "version: 1.0.0\n", "%YAML 1.1\n---\n" + head + "version: " + v + "\n"},
		"a letter that folds":     {head + "version: 1.0.0\nver\u017fion: 1.0.0\n", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"lone carriage returns":   {"apiVersion: v2\rname: a\rversion: 1.0.0\r", "apiVersion: v2\nname: a\nversion: 1.0.0+abc\n"},
		"unknown fields and text": {head + "x: {y: [1, 2.50]}\nversion: 1.0.0\ndescription: |\n  version: 1.0.0\n", head + "x: {y: [1, 2.50]}\nversion: " + v + "\ndescription: |\n  version: 1.0.0\n"},
		"a number":                {head + "appVersion: 1.10\nversion: 1\n", head + "appVersion: 1.10\nversion: " + v + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out := pack(t, files{"Chart.yaml": c.text}.open(t), bundle.Edit{Version: v})
			a := read(t, out)
			if a.Metadata.Version != v {
				t.Errorf("version %q", a.Metadata.Version)
			}
			if got := all(t, a.Files)["Chart.yaml"]; got != c.want {
				t.Errorf("%q\nwant %q", got, c.want)
			}
		})
	}
}

func TestAVersionThatIsNoneIsRefused(t *testing.T) {
	for _, v := range []string{"latest", "1.0.0\nname: x", "1.0.0 # x", "../1.0.0", "1.0.0+a+b", "'"} {
		_, err := plain.open(t).Pack(t.Context(), io.Discard, bundle.Edit{Version: v})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", v, err)
		}
	}
}
