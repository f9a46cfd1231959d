package azure

import (
	"encoding/xml"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/markup"
)

func TestPage(t *testing.T) {
	const whole = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<!-- x --><EnumerationResults ServiceEndpoint=\"https://acme.example/\" ContainerName='c'>" +
		"<Prefix>no</Prefix><NextMarker>m&amp;n</NextMarker><Blobs>" +
		"<BlobPrefix><Name>no</Name></BlobPrefix>" +
		"<Blob><Name>a+b&#x20;%41</Name><Deleted>false</Deleted><Snapshot/><IsCurrentVersion>true</IsCurrentVersion><Properties><Etag>\"0x1\"</Etag><Content-Length>3</Content-Length><ResourceType>file</ResourceType><AccessTier>Hot</AccessTier></Properties><Metadata/><OrMetadata/></Blob>" +
		"<Blob><Properties><Content-Length> 0 </Content-Length><Etag>0x2</Etag></Properties><Metadata><Name>no</Name><Etag>no</Etag><Hdi_isfolder>TRUE</Hdi_isfolder></Metadata><Name Encoded='true'>d%EF%BF%BE+%2B</Name></Blob>" +
		"<Blob><Name Encoded=\"false\" >d%41/</Name><Properties><Etag>W/\"0x3\"</Etag><Content-Length>0</Content-Length><ResourceType>directory</ResourceType></Properties></Blob>" +
		"<Blob><Name>old</Name><Snapshot>2020</Snapshot></Blob><Blob><Name>old</Name><Deleted>true</Deleted></Blob><Blob><Name>old</Name><IsCurrentVersion>false</IsCurrentVersion></Blob>" +
		"</Blobs></EnumerationResults>"
	want := []bucket.Object{{Key: "a+b %41", ETag: "0x1", Size: 3}, {Key: "d\ufffe++/", ETag: "0x2"}, {Key: "d%41/", ETag: "0x3"}}
	p, err := readPage(whole)
	if err != nil || p.Next != "m&n" || len(p.Objects) != len(want) {
		t.Fatalf("%+v, %v", p, err)
	}
	for i, o := range p.Objects {
		if o != want[i] {
			t.Errorf("%+v, want %+v", o, want[i])
		}
	}
	for i := range len(whole) {
		if p, err := readPage(whole[:i]); err == nil {
			t.Fatalf("%d bytes are taken for a page: %+v", i, p)
		}
	}
}

// reference is the same page by encoding/xml.
type reference struct {
	XMLName    xml.Name
	NextMarker string
	Blobs      struct {
		Blob []struct {
			Name struct {
				Encoded string `xml:",attr"`
				Text    string `xml:",chardata"`
			}
			Snapshot, Deleted, IsCurrentVersion string
			Properties                          struct {
				Etag string
			}
		}
	}
}

// FuzzPage checks that what is taken for a page is one for encoding/xml too,
// where that can read it, with the same blobs, and that nothing panics.
func FuzzPage(f *testing.F) {
	for _, text := range []string{
		"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>",
		`<?xml?><EnumerationResults><Blobs><Blob><Name Encoded="true">a%20b</Name><Properties><Etag>&quot;e&quot;</Etag><Content-Length>1</Content-Length></Properties></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>`,
		`<EnumerationResults><Blobs><Blob><Name>a&amp;<![CDATA[<b>]]></Name><Snapshot>s</Snapshot></Blob><Blob><Name>a/</Name><Properties><Etag>e</Etag><Content-Length>0</Content-Length><ResourceType>directory</ResourceType></Properties></Blob></Blobs></EnumerationResults>`,
		"<EnumerationResults a='>'><Blobs><Blob></Blobs>",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := readPage(text)
		if err != nil {
			return
		}
		for _, o := range p.Objects {
			if o.Key == "" || o.ETag == "" || o.Size < 0 || len(o.Key) > markup.MaxText+1 {
				t.Errorf("%+v", o)
			}
		}
		var r reference
		if !utf8.ValidString(text) || xml.Unmarshal([]byte(text), &r) != nil {
			return
		}
		i := 0
		for _, b := range r.Blobs.Blob {
			if l := (listed{snapshot: b.Snapshot, deleted: b.Deleted, current: b.IsCurrentVersion}); l.old() {
				continue
			}
			key := b.Name.Text
			if b.Name.Encoded == "true" {
				key, _ = url.PathUnescape(key)
			}
			if i == len(p.Objects) || strings.TrimSuffix(p.Objects[i].Key, "/") != strings.TrimSuffix(key, "/") || p.Objects[i].ETag != bucket.ETag(b.Properties.Etag) {
				t.Fatalf("%+v, want %+v", p, r)
			}
			i++
		}
		if r.XMLName.Local != "EnumerationResults" || i != len(p.Objects) {
			t.Fatalf("%+v, want %+v", p, r)
		}
	})
}

func BenchmarkPage(b *testing.B) {
	text := "<EnumerationResults><Blobs>" + strings.Repeat("<Blob><Name>dir/of/some/depth/name-of-a-blob</Name><Properties><Creation-Time>Mon, 02 Jan 2006 15:04:05 GMT</Creation-Time><Last-Modified>Mon, 02 Jan 2006 15:04:05 GMT</Last-Modified>"+
		"<Etag>0x8D0000000000001</Etag><Content-Length>4096</Content-Length><Content-Type>application/octet-stream</Content-Type><Content-Encoding/><Content-Language/><Content-MD5>AAAAAAAAAAAAAAAAAAAAAA==</Content-MD5><Cache-Control/>"+
		"<BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred><LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties><Metadata/></Blob>", 5000) + "</Blobs><NextMarker/></EnumerationResults>"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readPage(text); err != nil {
			b.Fatal(err)
		}
	}
}
