package testenv

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An azurePage is one page of a listing.
type azurePage struct {
	XMLName    xml.Name `xml:"EnumerationResults"`
	Endpoint   string   `xml:"ServiceEndpoint,attr"`
	Container  string   `xml:"ContainerName,attr"`
	Prefix     string   `xml:",omitempty"`
	Marker     string   `xml:",omitempty"`
	MaxResults int      `xml:",omitempty"`
	Blobs      azureBlobs
	NextMarker string
}

type azureBlobs struct{ Blob []azureListed }

type azureListed struct {
	Name       azureName
	Properties azureProperties
	Metadata   *azureMetadata
}

type azureName struct {
	Encoded bool   `xml:",attr,omitempty"`
	Text    string `xml:",chardata"`
}

type azureProperties struct {
	Created      string `xml:"Creation-Time"`
	LastModified string `xml:"Last-Modified"`
	Etag         string
	ResourceType string `xml:",omitempty"`
	Size         int    `xml:"Content-Length"`
	ContentType  string `xml:"Content-Type"`
	Encoding     string `xml:"Content-Encoding"`
	BlobType     string
	AccessTier   string
	LeaseStatus  string
	LeaseState   string
	Encrypted    bool `xml:"ServerEncrypted"`
}

// azureMetadata are elements with names of their own.
type azureMetadata map[string]string

// MarshalXML implements [xml.Marshaler].
func (m azureMetadata) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	e.EncodeToken(start)
	for name, value := range m {
		e.EncodeElement(value, xml.StartElement{Name: xml.Name{Local: name}})
	}
	return e.EncodeToken(start.End())
}

// list answers List Blobs.
func (c *AzblobContainer) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("restype") != "container" || query.Get("comp") != "list" || query.Has("delimiter") {
		azureRefusal(http.StatusBadRequest, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.").write(w)
		return
	}
	size := 5000
	if n, err := strconv.Atoi(query.Get("maxresults")); err == nil {
		size = min(n, size)
	}
	if n := c.config.PageSize; n > 0 {
		size = min(n, size)
	}
	p := azurePage{Endpoint: c.url, Container: c.name, Prefix: query.Get("prefix"), Marker: query.Get("marker"), MaxResults: size}
	after, err := base64.RawURLEncoding.DecodeString(p.Marker)
	if err != nil {
		azureRefusal(http.StatusBadRequest, "OutOfRangeInput", "One of the request inputs is out of range.").write(w)
		return
	}
	c.mu.Lock()
	c.fill(&p, string(after), strings.Contains(query.Get("include"), "metadata"))
	c.mu.Unlock()
	writeXML(w, http.StatusOK, p)
}

// fill puts up to p.MaxResults blobs behind a name on a page.
func (c *AzblobContainer) fill(p *azurePage, after string, metadata bool) {
	names := c.listed()
	at, found := slices.BinarySearch(names, after)
	if found && p.Marker != "" {
		at++
	}
	for ; at < len(names); at++ {
		name := names[at]
		if !strings.HasPrefix(name, p.Prefix) {
			continue
		}
		if len(p.Blobs.Blob) >= p.MaxResults {
			p.NextMarker = base64.RawURLEncoding.EncodeToString([]byte(names[at-1]))
			break
		}
		p.Blobs.Blob = append(p.Blobs.Blob, c.entry(name, metadata))
	}
}

// entry returns what is listed of a blob, or of a directory.
func (c *AzblobContainer) entry(name string, metadata bool) azureListed {
	b, kind := c.blobs[name], ""
	if c.config.Hierarchical {
		kind = "file"
	}
	if b == nil {
		kind = "directory"
		b = &storedBlob{StoredBlob{Metadata: map[string]string{"hdi_isfolder": "true"}}, "0x8D0000000000001", time.Now()}
	}
	since := b.since.UTC().Format(http.TimeFormat)
	e := azureListed{Name: azureSpelling(name), Properties: azureProperties{Created: since, LastModified: since, Etag: b.etag, ResourceType: kind,
		Size: len(b.Content), ContentType: "application/octet-stream", Encoding: b.Encoding, BlobType: "BlockBlob",
		AccessTier: "Hot", LeaseStatus: "unlocked", LeaseState: "available", Encrypted: true}}
	if b.Tier != "" {
		e.Properties.AccessTier = b.Tier
	}
	if metadata {
		m := azureMetadata(b.Metadata)
		e.Metadata = &m
	}
	return e
}

// azureSpelling returns a name as listings spell it: encoded when XML could not hold it.
func azureSpelling(name string) azureName {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0xfffe || r == 0xffff }) {
		return azureName{true, strings.ReplaceAll(url.QueryEscape(name), "+", "%20")}
	}
	return azureName{false, name}
}
