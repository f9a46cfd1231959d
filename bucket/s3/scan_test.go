package s3

import (
	"encoding/xml"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/markup"
)

func TestScan(t *testing.T) {
	const whole = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<!-- <Key>no</Key> --><s:ListBucketResult xmlns:s='http://s3.amazonaws.com/doc/2006-03-01/' a=\"x>y/>\" >" +
		"<Name>bucket</Name><Owner><Key>no</Key></Owner><Empty/><Empty a='b' /><s:IsTruncated>true</s:IsTruncated>" +
		"<Contents><Key>a&amp;b &lt;&#62;&#x22;<!-- x -->&apos;</Key><Owner><Key>no</Key></Owner><ETag>W/&quot;e&quot;</ETag><Size> 12 </Size></Contents >" +
		"<Contents>\n <Size>0</Size><Key><![CDATA[c<&amp;]]>d\r\ne</Key></Contents>" +
		"<CommonPrefixes><Prefix>no</Prefix></CommonPrefixes><NextContinuationToken>t&#x3d;</NextContinuationToken></s:ListBucketResult> trailing"
	p, err := readPage(whole, "")
	want := []bucket.Object{{Key: `a&b <>"'`, ETag: "e", Size: 12}, {Key: "c<&amp;d\ne"}}
	if err != nil || p.Next != "t=" || len(p.Objects) != 2 || p.Objects[0] != want[0] || p.Objects[1] != want[1] {
		t.Errorf("%+v, %v", p, err)
	}
	for i := range strings.LastIndex(whole, ">") {
		if p, err := readPage(whole[:i], ""); err == nil {
			t.Fatalf("%d bytes are taken for a page: %+v", i, p)
		}
	}
	const escaped = "<ListBucketResult><IsTruncated>false</IsTruncated><NextContinuationToken>x</NextContinuationToken>" +
		"<Contents><Key>a%20b+c%2B%25%0A</Key><Size>1</Size></Contents><EncodingType>url</EncodingType></ListBucketResult>"
	if p, err := readPage(escaped, "a "); err != nil || p.Next != "" || p.Objects[0].Key != "a b c+%\n" {
		t.Errorf("%+v, %v", p, err)
	}
}

// Texts that are no XML, or would make one key of two, are refused.
func TestText(t *testing.T) {
	for _, text := range []string{"a&amp", "a&#65", "&", "&;", "&#;", "&#x;", "&#xD800;", "&#xD801;", "&#x110000;", "&#-1;", "&#+1;", "&#x1_0;", "&x41;"} {
		if meant, err := (markup.Token{Text: text}).Meant(); err == nil {
			t.Errorf("%s is taken for %q", text, meant)
		}
	}
	p, err := readPage("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key><![CDATA[a\r\nb\r]]></Key><Size>1</Size></Contents></ListBucketResult>", "")
	if err != nil || p.Objects[0].Key != "a\nb\n" {
		t.Errorf("%+v, %v", p.Objects, err)
	}
}

// reference is the same page by encoding/xml.
type reference struct {
	XMLName               xml.Name
	IsTruncated           string
	EncodingType          string
	NextContinuationToken string
	Contents              []struct{ Key, ETag, Size string }
}

// FuzzPage checks that what is taken for a page is one for encoding/xml too,
// where that can read it, with the same objects, and that nothing panics.
func FuzzPage(f *testing.F) {
	f.Add("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a&amp;&#38;&#x26;</Key><ETag>&quot;e&quot;</ETag><Size>1</Size></Contents></ListBucketResult>")
	f.Add("<?xml?><!-- --><l:ListBucketResult xmlns:l='x'><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Owner/></l:ListBucketResult>")
	f.Add("<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents><Key><![CDATA[a%20b]]></Key><Size>0</Size></Contents></ListBucketResult>")
	f.Add("<ListBucketResult a='>'><a><b></a></b>")
	f.Add("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a\r\nb&#xD;</Key><Size>1</Size></Contents></ListBucketResult>")
	f.Add("<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Size>1</Size><Key><![CDATA[a\r\n]]>&amp</Key></Contents></ListBucketResult>")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readPage(text, "")
		if err != nil {
			return
		}
		for _, o := range p.Objects {
			if o.Key == "" || o.Size < 0 || len(o.Key) > markup.MaxText {
				t.Errorf("%+v", o)
			}
		}
		var r reference
		if !utf8.ValidString(text) || xml.Unmarshal([]byte(text), &r) != nil {
			return
		}
		if r.XMLName.Local != "ListBucketResult" || len(r.Contents) != len(p.Objects) {
			t.Fatalf("%+v, want %+v", p, r)
		}
		for i, o := range r.Contents {
			key := o.Key
			if r.EncodingType == "url" {
				key, _ = url.QueryUnescape(key)
			}
			size, _ := strconv.ParseInt(strings.TrimSpace(o.Size), 10, 64)
			if got := p.Objects[i]; got.Key != key || got.ETag != bucket.ETag(o.ETag) || got.Size != size {
				t.Errorf("%+v, want %+v", got, o)
			}
		}
		if more := strings.TrimSpace(r.IsTruncated) == "true"; p.Next != r.NextContinuationToken && more || p.Next != "" && !more {
			t.Errorf("%q is next, want %q", p.Next, r.NextContinuationToken)
		}
	})
}

// FuzzRefusal checks that no refusal makes a message that is long, or shows a secret.
func FuzzRefusal(f *testing.F) {
	f.Add("<Error><Code>AccessDenied</Code><Message>not canary</Message></Error>")
	f.Add("<ErrorResponse><Error><Code>Y2FuYXJ5</Code><Message>\x1b[31m</Message></Error></ErrorResponse>")
	f.Fuzz(func(t *testing.T, text string) {
		r := &refusal{doing: "list objects", code: 403}
		r.parse([]byte(text), []string{"canary"})
		if said := r.status(nil).Error(); strings.Contains(said, "canary") || len(said) > 1024 || strings.ContainsAny(said, "\n\x1b") {
			t.Errorf("%q", said)
		}
	})
}
