package testenv

import (
	"encoding/xml"
	"io"
	"net/http"
	"strconv"
)

// An s3Error is how S3 refuses.
type s3Error struct {
	XMLName xml.Name `xml:"Error"`
	status  int
	Code    string
	Message string

	Region            string `xml:",omitempty"`
	AWSAccessKeyID    string `xml:"AWSAccessKeyId,omitempty"`
	StringToSign      string `xml:",omitempty"`
	SignatureProvided string `xml:",omitempty"`
	CanonicalRequest  string `xml:",omitempty"`
	Resource          string
	RequestID         string `xml:"RequestId"`
	HostID            string `xml:"HostId"`
}

func s3Refusal(status int, code, message string) *s3Error {
	return &s3Error{status: status, Code: code, Message: message}
}

func (e s3Error) write(w http.ResponseWriter, r *http.Request) {
	e.Resource, e.RequestID, e.HostID = r.URL.Path, w.Header().Get("X-Amz-Request-Id"), "testenv"
	if r.Method == http.MethodHead {
		w.WriteHeader(e.status)
		return
	}
	writeXML(w, e.status, e)
}

func writeXML(w http.ResponseWriter, status int, v any) {
	text, err := xml.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(xml.Header)+len(text)))
	w.WriteHeader(status)
	io.WriteString(w, xml.Header)
	w.Write(text)
}
