package bucket

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What no listing is, or would make one object of two, is refused; how stores spell a listing makes no difference.
func TestXMLPage(t *testing.T) {
	f := XMLPage{Root: "List", Item: "Item", Items: 2, Each: []string{"Size"}, Needs: "More", Limit: 1 << 10}
	const item = "<Item><Key>a</Key><Size>1</Size></Item>"
	for text, say := range map[string]string{
		"<List><More/></List>": "",
		"\ufeff<?xml version='1.0'?>\r\n<!-- x --><s:List xmlns:s='a/b' a=\"b\"><s:More >m</s:More >" + item + item + "</s:List> trailing": "",
		"<List><More/><Item><Key/><Size>1</Size><Owner><Key>b</Key></Owner><Key2/><Tag/><Tag/></Item></List>":                              "",

		"": "no listing", "{}": "no listing", "<": "no listing", "<List": "no listing", "</List>": "no listing", "<html></html>": "no listing",
		"<List></List>": "no listing",
		"<List><More/>" + item + item + item + "</List>":         "more than the 2 objects",
		"<List><More/><Item/><Item/><Item/></List>":              "more than the 2 objects",
		"<List><More/><Item><Key>a</Key></Item></List>":          "without Size",
		"<List><More/><Item><Size>1</Size><y:Size/></Item>":      "with several",
		"<List><More/>" + strings.Repeat(" ", 1<<10) + "</List>": "too large",
	} {
		resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
		err := f.Check(resp)
		if (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %s", text, err, say)
		}
		if left, _ := io.ReadAll(resp.Body); err == nil && string(left) != text {
			t.Errorf("%s is left of %s", left, text)
		}
	}
	for kind, good := range map[string]bool{"": true, "application/xml": true, "text/plain": true, "application/xhtml+xml": true, "text/html; charset=utf-8": false, "application/json": false} {
		resp := &http.Response{Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader("<List><More/></List>"))}
		if err := f.Check(resp); (err == nil) != good {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func FuzzXMLPage(f *testing.F) {
	page := XMLPage{Root: "List", Item: "Item", Items: 2, Needs: "More", Limit: 1 << 20}
	for _, text := range []string{"<List><More/><Item><Key>a</Key></Item></List>", "<", "</", "<:/>", "<!", "<a:b/ ", "<List/><List>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if page.check([]byte(text)) == nil && !strings.Contains(text, "More") {
			t.Errorf("%q is taken for a page", text)
		}
	})
}
