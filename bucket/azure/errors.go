package azure

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
)

// hints say what to do about an answer, by its code.
var hints = map[string]string{
	"AccountIsDisabled":                  "enable the storage account",
	"AuthenticationFailed":               "check the credentials, and the clock of this machine",
	"AuthorizationFailure":               "check the credentials, the role of the identity, and the firewall of the storage account",
	"AuthorizationPermissionMismatch":    "give the identity the role Storage Blob Data Reader, or the shared access signature the permissions r and l",
	"AuthorizationProtocolMismatch":      "the shared access signature is good over https only: use that in spec.endpoint",
	"AuthorizationResourceTypeMismatch":  "the shared access signature must be for containers and objects (srt=co)",
	"AuthorizationServiceMismatch":       "the shared access signature must be for blobs (ss=b)",
	"AuthorizationSourceIPMismatch":      "the shared access signature is for other addresses than this one",
	"BlobArchived":                       "the blob is of tier Archive: rehydrate it, or exclude it with spec.ignore",
	"BlobBeingRehydrated":                "the blob comes back from tier Archive, which takes hours",
	"ContainerBeingDeleted":              "check spec.bucketName",
	"ContainerNotFound":                  "check spec.bucketName, and the account in spec.endpoint",
	"InsufficientAccountPermissions":     "give the identity the role Storage Blob Data Reader",
	"InvalidAuthenticationInfo":          "check the credentials, and the clock of this machine",
	"InvalidResourceName":                "check spec.bucketName",
	"KeyBasedAuthenticationNotPermitted": "the storage account accepts no keys: use an identity",
	"NoAuthenticationInformation":        "name a Secret with credentials in spec.secretRef",
	"PublicAccessNotPermitted":           "name a Secret with credentials in spec.secretRef",
	"UnsupportedSignedExpiry":            "check the shared access signature",
}

// explain makes an error fit to be shown of one of the SDK, which prints whole answers.
func (d *driver) explain(ctx context.Context, doing string, err error) error {
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok && ctx.Err() == nil {
		return d.answer(doing, refused)
	}
	return d.access.Explain(ctx, doing, err)
}

// A refusal is the body of an answer that refuses a request.
type refusal struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
	Detail  string `xml:"AuthenticationErrorDetail"`
}

// answer returns what a server says about a failure.
func (d *driver) answer(doing string, err *azcore.ResponseError) error {
	e := &bucket.StatusError{Doing: doing, Status: err.StatusCode, Code: d.access.Code(err.ErrorCode)}
	var body refusal
	if resp := err.RawResponse; resp != nil {
		e.After, _ = transport.RetryAfter(resp.Header, time.Now())
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxNo))
		transport.Finish(resp)
		if xml.Unmarshal(text, &body) == nil {
			e.Message = said(body.Message, d.access)
		}
	}
	if e.Code == "" {
		e.Code = d.access.Code(body.Code)
	}
	e.Hint = d.hint(e, body.Detail)
	return e
}

// hint returns what to do about an answer.
func (d *driver) hint(e *bucket.StatusError, detail string) string {
	switch {
	case strings.Contains(detail, "Request date header too old"):
		return "the clock of this machine is wrong: set it"
	case strings.Contains(detail, "Signature not valid in the specified time frame"):
		return "the shared access signature is not valid now: renew it, or set the clock of this machine"
	case d.anonymous && (e.Status == http.StatusNotFound || e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusConflict):
		return "no credentials were sent: name a Secret in spec.secretRef unless the container is public"
	case e.Status >= 300 && e.Status < 400:
		return "redirects are not followed: check spec.endpoint"
	}
	return hints[e.Code]
}

// said is [bucket.Said] without what the server calls the request.
func said(text string, a *bucket.Access) string {
	for _, end := range []string{"\nRequestId:", " Trace ID:"} {
		text, _, _ = strings.Cut(text, end)
	}
	return strings.TrimSuffix(bucket.Said(text, a.Vault.Values()...), ".")
}
