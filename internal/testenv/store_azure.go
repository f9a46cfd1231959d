package testenv

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// StartAzblob runs a storage account that serves List Blobs and Get Blob of Azure
// Blob Storage, and the authority that issues tokens for it, until the test ends.
func StartAzblob(t testing.TB, c StoreConfig) *Store {
	if c.Account == "" {
		c.Account = "acme"
	}
	s := azureDialect.start(t, c, false)
	s.URL = s.Base + "/" + c.Account
	return s
}

// AzureFailure returns a defect that answers with an error in the format of Azure Storage.
func AzureFailure(status int, code, message string) *Defect {
	return azureDialect.failure(status, code, message)
}

var azureDialect = dialect{route: routeAzure, verify: verifyAzure, serveAuth: azureAuthority, page: pageAzure, header: headerAzure, refuse: refuseAzure,
	codes: map[int]string{-404: "ContainerNotFound", 404: "BlobNotFound", 409: "BlobArchived", 412: "ConditionNotMet", 416: "InvalidRange"}}

func routeAzure(s *Store, r *http.Request) (phase Phase, container, blob string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	first, rest, _ := strings.Cut(path, "/")
	switch {
	case first == s.config.Account:
	case strings.HasSuffix(path, tokenPath):
		return GetToken, "", ""
	case first == s.config.Tenant || first == "common":
		return FindAuthority, "", ""
	default: // the account is part of the host name
		rest = path
	}
	if container, blob, _ = strings.Cut(rest, "/"); blob != "" {
		return GetObject, container, blob
	}
	return ListObjects, container, ""
}

// etagAzure returns an ETag that changes with every upload, even if name and content stay the same.
func etagAzure(o StoredObject) string { return fmt.Sprintf("0x8D%013X", o.generation) }

func headerAzure(h http.Header, o StoredObject) {
	h.Set("ETag", `"`+etagAzure(o)+`"`)
	h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Ms-Blob-Type", "BlockBlob")
}

func refuseAzure(w http.ResponseWriter, _ *http.Request, e *refusal) {
	w.Header().Set("X-Ms-Error-Code", e.code)
	writeXML(w, e.status, struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
		Detail        string `xml:"AuthenticationErrorDetail,omitempty"`
	}{Code: e.code, Message: e.message + "\nRequestId:1\nTime:2", Detail: e.detail})
}

func pageAzure(s *Store, w http.ResponseWriter, r *http.Request, p storePage) {
	type properties struct {
		Etag         string
		ResourceType string `xml:",omitempty"`
		Size         int    `xml:"Content-Length"`
		BlobType     string
	}
	type name struct {
		Encoded bool   `xml:",attr,omitempty"`
		Text    string `xml:",chardata"`
	}
	type metadata struct {
		Folder string `xml:"hdi_isfolder,omitempty"`
	}
	type blob struct {
		Name       name
		Properties properties
		Metadata   metadata
	}
	page := struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Container  string   `xml:"ContainerName,attr"`
		Prefix     string   `xml:",omitempty"`
		Blobs      struct{ Blob []blob }
		NextMarker string
	}{Container: p.bucket, Prefix: p.prefix, NextMarker: p.next}
	for i, o := range p.objects {
		b := blob{name{false, p.names[i]}, properties{Etag: etagAzure(o), Size: len(o.Content), BlobType: "BlockBlob"}, metadata{o.Metadata["hdi_isfolder"]}}
		if strings.ContainsFunc(p.names[i], func(r rune) bool { return r < ' ' || r == 0xfffe || r == 0xffff }) { // XML cannot represent these characters
			b.Name = name{true, strings.ReplaceAll(url.QueryEscape(p.names[i]), "+", "%20")}
		}
		if s.config.Hierarchical && o.generation == 0 {
			b.Properties.ResourceType, b.Properties.Etag = "directory", "0x8D0000000000001"
		}
		page.Blobs.Blob = append(page.Blobs.Blob, b)
	}
	writeXML(w, http.StatusOK, page)
}

func verifyAzure(s *Store, r *http.Request, _ []byte, phase Phase) *refusal {
	w, c := r.URL.Query(), s.config
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	issues := c.Tenant+c.Token != ""
	switch {
	case scheme != "" && w.Has("sig") || r.Header.Get("X-Ms-Version") == "":
		return &refusal{status: 400, code: "InvalidAuthenticationInfo", message: "Authentication information is not given in the correct format."}
	case scheme == "SharedKey" && c.Key != "":
		return s.verifyKey(r, given)
	case scheme == "Bearer" && issues:
		if _, _, valid := s.findCredential(given); valid || c.Token != "" && equalSecret(given, c.Token) {
			return nil
		}
		return &refusal{status: 401, code: "InvalidAuthenticationInfo", message: "Server failed to authenticate the request."}
	case w.Has("sig") && c.SAS != "":
		return s.verifySAS(w, phase)
	case scheme != "" || w.Has("sig"):
		return unauthenticated("")
	case c.Anonymous || c.Key+c.SAS == "" && !issues:
		return nil
	}
	return &refusal{status: 401, code: "NoAuthenticationInformation", message: "Server failed to authenticate the request."}
}

func unauthenticated(detail string) *refusal {
	return &refusal{status: 403, code: "AuthenticationFailed", detail: detail,
		message: "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature."}
}

// verifyKey checks a signature (Authorize with Shared Key, version 2015-02-21).
func (s *Store) verifyKey(r *http.Request, given string) *refusal {
	date, err := http.ParseTime(r.Header.Get("X-Ms-Date"))
	if err != nil || s.now().Sub(date).Abs() > 15*time.Minute {
		return unauthenticated("Request date header too old: '" + r.Header.Get("X-Ms-Date") + "'")
	}
	lines := []string{r.Method}
	for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		lines = append(lines, r.Header.Get(name)) // Content-Length is empty without a body; X-Ms-Date replaces Date
	}
	var headers, parameters []string
	for name, values := range r.Header {
		if name := strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			headers = append(headers, name+":"+strings.Join(values, ","))
		}
	}
	for name, values := range r.URL.Query() {
		parameters = append(parameters, strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(headers)
	slices.Sort(parameters)
	lines = slices.Concat(lines, headers, []string{"/" + s.config.Account + r.URL.EscapedPath()}, parameters)
	key, _ := base64.StdEncoding.DecodeString(s.config.Key)
	h := hmac.New(sha256.New, key)
	h.Write([]byte(strings.Join(lines, "\n")))
	if want := s.config.Account + ":" + base64.StdEncoding.EncodeToString(h.Sum(nil)); !equalSecret(given, want) {
		return unauthenticated("The MAC signature found in the HTTP request '" + given + "' is not the same as any computed signature.")
	}
	return nil
}

// verifySAS checks that the query contains the whole shared access signature, and that it
// has not expired and permits the request.
func (s *Store) verifySAS(query url.Values, phase Phase) *refusal {
	want, _ := url.ParseQuery(s.config.SAS)
	for name := range want {
		if !equalSecret(query.Get(name), want.Get(name)) {
			return unauthenticated("Signature did not match.")
		}
	}
	if end, err := time.Parse(time.RFC3339, want.Get("se")); err == nil && s.now().After(end) {
		return unauthenticated("Signature not valid in the specified time frame: Expiry [" + end.Format(time.RFC1123) + "]")
	}
	if permission := map[Phase]string{ListObjects: "l", GetObject: "r"}[phase]; want.Has("sp") && !strings.Contains(want.Get("sp"), permission) {
		return &refusal{status: 403, code: "AuthorizationPermissionMismatch", message: "This request is not authorized to perform this operation using this permission."}
	}
	return nil
}

// azureAuthority answers OpenID Connect Discovery and requests for tokens (RFC 6749 section 4.4, RFC 7523 section 2.2).
func azureAuthority(s *Store, w http.ResponseWriter, r *http.Request, phase Phase) {
	c, base := s.config, s.Base+"/"+s.config.Tenant
	if phase == FindAuthority {
		writeJSON(w, http.StatusOK, map[string]any{"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize"})
		return
	}
	refuse := func(status int, code, text string) {
		writeJSON(w, status, map[string]any{"error": code, "error_description": text + " Trace ID: 1 Correlation ID: 2"})
	}
	switch {
	case c.Tenant == "" || r.URL.Path != "/"+c.Tenant+"/oauth2/v2.0/token":
		refuse(400, "invalid_request", "AADSTS90002: Tenant not found.")
	case r.PostFormValue("client_id") != c.Client:
		refuse(400, "unauthorized_client", "AADSTS700016: Application was not found in the directory.")
	case !strings.Contains(" "+r.PostFormValue("scope")+" ", " https://storage.azure.com/.default "):
		refuse(400, "invalid_scope", "AADSTS70011: The provided value for the input parameter 'scope' is not valid.")
	case !(c.Secret != "" && equalSecret(r.PostFormValue("client_secret"), c.Secret)) && !s.validAssertion(r.PostFormValue("client_assertion")):
		refuse(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
	default:
		k := s.issue("")
		writeJSON(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": int(time.Until(k.expires).Seconds()), "access_token": k.token})
	}
}

// validAssertion reports whether an assertion is signed with the key of the certificate (RFC 7515, PS256).
func (s *Store) validAssertion(assertion string) bool {
	key, err := jwt.ParseRSAPublicKeyFromPEM(s.config.Certificate)
	if err != nil {
		return false
	}
	_, err = jwt.Parse(assertion, func(*jwt.Token) (any, error) { return key, nil }, jwt.WithValidMethods([]string{"PS256"}), jwt.WithIssuer(s.config.Client), jwt.WithExpirationRequired())
	return err == nil
}
