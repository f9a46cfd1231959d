// Package aws logs in to CodeCommit (reference A9), to buckets of S3 (reference A10), and
// to private and public registries of ECR (reference A11).
//
// The identity of a service account is the role in its annotation
// eks.amazonaws.com/role-arn, assumed with a token of the account for the audience
// sts.amazonaws.com. Without a service account, the provider uses the identity of the
// program. In a job of GitHub or Forgejo Actions with AWS_ROLE_ARN, and without
// AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_PROFILE, this is that role,
// assumed with the job's identity token for the audience sts.amazonaws.com. Otherwise it is
// the identity that the chain of the AWS SDK finds: environment variables, a web identity,
// the shared files with their profiles, the container's role, the instance's role. A
// profile with credential_process makes the SDK run that program.
//
//   - The URL must be https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME,
//     oci://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME, oci://public.ecr.aws/NAME or
//     s3://s3.REGION.amazonaws.com/BUCKET, or the form of one of these with FIPS, over
//     IPv6, in a private network or in another partition of AWS. No other host receives a
//     credential.
//   - A role that is assumed with an identity token must be in the partition of the URL: no
//     other partition receives the token.
//   - The user name and password for CodeCommit are created for each use: the password is a
//     signature over host and path that is valid for 15 minutes. CodeCommit refuses later
//     requests, even in the same conversation.
//   - The password for a registry is a token that ECR issues for all registries of a region
//     that the identity may use. The region alone decides which endpoint issues it.
//   - For a bucket the keys themselves are the credential, with their session token. If a
//     token service issues the keys, it is that of the region, or the one in the query of
//     the URL, sts=https://HOST, which must be a host of AWS in the same partition.
//   - Temporary keys and tokens are used for 80 % of their lifetime, at most an hour.
package aws

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A Provider logs in with the identity of the program, and keeps temporary keys
// and tokens. The zero value is ready to use. The SDK reads the environment of the
// process itself.
type Provider struct {
	Now    func() time.Time                 // nil for time.Now
	Lookup func(name string) (string, bool) // environment lookup, nil for os.LookupEnv

	keys   exchange.Credentials
	tokens exchange.Credentials
}

func (p *Provider) env() exchange.Environment { return p.Lookup }

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, account, client, err := exchange.Begin(ctx, r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	if at.service == registry || at.service == publicRegistry {
		return p.registryCredential(ctx, client, at, account)
	}
	keys, err := p.accessKeys(ctx, client, at, account)
	if err != nil || at.service == buckets {
		return keys, err
	}
	now := exchange.Time(p.Now)
	c := sign(keys, r.URL, at.region, now)
	if c.Expires = now.Add(validity); !keys.Expires.IsZero() && keys.Expires.Before(c.Expires) {
		c.Expires = keys.Expires
	}
	c.Refused = keys.Refused
	return c, nil
}

// accessKeys returns the keys of an account, or of the program, as a credential for buckets.
func (p *Provider) accessKeys(ctx context.Context, client *http.Client, at endpoint, account *source.Account) (source.Credential, error) {
	return p.keys.Get(ctx, p.Now, at.region+" "+at.issuer+exchange.AccountKey(account), func(ctx context.Context) (source.Credential, error) {
		var keys aws.Credentials
		err := p.checkPartition(at.region, account)
		if err == nil && account != nil {
			keys, err = p.assume(ctx, exchange.WithContext(ctx, client), at, account)
		} else if err == nil {
			if keys, err = p.retrieve(ctx, exchange.WithContext(ctx, client), at); err != nil {
				err = p.explain(ctx, "get the keys of this program", err, nil)
			}
		}
		if err != nil {
			return source.Credential{}, err
		}
		c := source.Credential{Username: keys.AccessKeyID, Password: keys.SecretAccessKey, Token: keys.SessionToken}
		if keys.CanExpire {
			c.Expires = keys.Expires
		}
		return c, nil
	})
}

// registryCredential returns a credential for the registries at an endpoint. If ECR refuses
// the keys, they are not used again.
func (p *Provider) registryCredential(ctx context.Context, client *http.Client, at endpoint, account *source.Account) (source.Credential, error) {
	return p.tokens.Get(ctx, p.Now, fmt.Sprint(at)+exchange.AccountKey(account), func(ctx context.Context) (source.Credential, error) {
		keys, err := p.accessKeys(ctx, client, at, account)
		if err != nil {
			return source.Credential{}, err
		}
		text, expires, err := requestToken(ctx, at, credentials.NewStaticCredentialsProvider(keys.Username, keys.Password, keys.Token), withClient(client))
		if err != nil {
			if err = p.explain(ctx, "get a token of "+at.service, err, account, keys.Password, keys.Token); errors.Is(err, source.ErrProvider) {
				keys.Refused()
			}
			return source.Credential{}, err
		}
		c, err := parse(aws.ToString(text))
		c.Expires, c.Refused = aws.ToTime(expires), keys.Refused
		return c, err
	})
}

// requestToken requests an authorization token from a service. The SDK's rules for the region decide
// the endpoint; neither the environment nor a profile can change it.
func requestToken(ctx context.Context, at endpoint, keys aws.CredentialsProvider, sender func(*middleware.Stack) error) (token *string, expires *time.Time, err error) {
	fips, dual := aws.FIPSEndpointStateUnset, aws.DualStackEndpointStateUnset
	if at.fips {
		fips = aws.FIPSEndpointStateEnabled
	}
	if at.dual {
		dual = aws.DualStackEndpointStateEnabled
	}
	if at.service == publicRegistry {
		o := ecrpublic.Options{Region: at.region, Credentials: keys, RetryMaxAttempts: attempts, APIOptions: []func(*middleware.Stack) error{sender}}
		o.EndpointOptions.UseDualStackEndpoint = dual
		out, err := ecrpublic.New(o).GetAuthorizationToken(ctx, nil)
		if err != nil || out.AuthorizationData == nil {
			return nil, nil, err
		}
		return out.AuthorizationData.AuthorizationToken, out.AuthorizationData.ExpiresAt, nil
	}
	o := ecr.Options{Region: at.region, Credentials: keys, RetryMaxAttempts: attempts, APIOptions: []func(*middleware.Stack) error{sender}}
	o.EndpointOptions.UseFIPSEndpoint, o.EndpointOptions.UseDualStackEndpoint = fips, dual
	out, err := ecr.New(o).GetAuthorizationToken(ctx, nil)
	if err != nil || len(out.AuthorizationData) == 0 {
		return nil, nil, err
	}
	return out.AuthorizationData[0].AuthorizationToken, out.AuthorizationData[0].ExpiresAt, nil
}

// parse decodes an authorization token: USER:PASSWORD in base64.
func parse(text string) (source.Credential, error) {
	decoded, err := base64.StdEncoding.DecodeString(text)
	user, password, found := strings.Cut(string(decoded), ":")
	if err != nil || !found {
		return source.Credential{}, errors.New("the answer of the registry's token service holds no token that can be sent")
	}
	return source.Credential{Username: user, Password: password}, nil
}

// validity is how long CodeCommit accepts a signature.
const validity = 15 * time.Minute

// sign returns the user name and password with which the owner of keys reads the repository
// at u.
//
// The user name is the access key id, followed by % and the session token if there is one.
// The password is the time as 20060102T150405, Z, and in hexadecimal the signature of
// version 4 over these lines, for the service codecommit:
//
//	AWS4-HMAC-SHA256
//	20060102T150405                             (without Z)
//	20060102/REGION/codecommit/aws4_request
//	SHA-256 of the request, in hexadecimal
//
// The request stands for all requests of a conversation. It has the method GIT, no query,
// one header, and no content:
//
//	GIT
//	/v1/repos/NAME
//
//	host:HOST
//
//	host
//	                                            (the line break after host is the last byte)
func sign(keys source.Credential, u *url.URL, region string, now time.Time) source.Credential {
	stamp := now.UTC().Format("20060102T150405")
	scope := []string{stamp[:8], region, "codecommit", "aws4_request"}
	request := "GIT\n" + strings.TrimRight(u.EscapedPath(), "/") + "\n\nhost:" + strings.ToLower(u.Hostname()) + "\n\nhost\n"
	digest := sha256.Sum256([]byte(request))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, strings.Join(scope, "/"), hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + keys.Password)
	for _, part := range append(scope, text) {
		key = mac(key, part)
	}
	user := keys.Username
	if keys.Token != "" {
		user += "%" + keys.Token
	}
	return source.Credential{Username: user, Password: stamp + "Z" + hex.EncodeToString(key)}
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

const (
	audience = "sts.amazonaws.com" // of a job's identity token
	attempts = 2                   // for each request to a token service
)

// retrieve gets keys of the program, for the region of at if the environment names none.
func (p *Provider) retrieve(ctx context.Context, client *http.Client, at endpoint) (aws.Credentials, error) {
	options := []func(*config.LoadOptions) error{
		config.WithDefaultRegion(at.region),
		config.WithRetryMaxAttempts(attempts),
		config.WithLogger(logging.Nop{}), // errors say what matters
		config.WithAPIOptions([]func(*middleware.Stack) error{withClient(client)}),
	}
	if at.issuer != "" {
		options = append(options, config.WithRegion(at.region),
			config.WithAPIOptions([]func(*middleware.Stack) error{withTokenService(at.issuer)}))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Credentials{}, err
	}
	if !p.inJob() {
		return c.Credentials.Retrieve(ctx)
	}
	token, err := exchange.JobToken(ctx, client, p.env(), audience)
	if err != nil {
		return aws.Credentials{}, err
	}
	return assumeWithToken(ctx, c, p.env().Value("AWS_ROLE_ARN"), cmp.Or(p.env().Value("AWS_ROLE_SESSION_NAME"), "headgate"), token)
}

// assumeWithToken assumes a role with an identity token.
func assumeWithToken(ctx context.Context, c aws.Config, role, session, token string) (aws.Credentials, error) {
	c.Credentials = aws.AnonymousCredentials{}
	return stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(c), role, identityToken(token), func(o *stscreds.WebIdentityRoleOptions) {
		o.RoleSessionName = session
	}).Retrieve(ctx)
}

// The annotation that names the role of a service account.
const roleAnnotation = "eks.amazonaws.com/role-arn"

var roleForm = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+$`)

// assume gets keys of the role of a service account.
func (p *Provider) assume(ctx context.Context, client *http.Client, at endpoint, account *source.Account) (aws.Credentials, error) {
	token, err := account.Token(ctx, audience)
	if err != nil {
		return aws.Credentials{}, err
	}
	c := aws.Config{Region: at.region, RetryMaxAttempts: attempts, Logger: logging.Nop{}, APIOptions: []func(*middleware.Stack) error{withClient(client)}}
	if at.issuer != "" {
		c.APIOptions = append(c.APIOptions, withTokenService(at.issuer))
	}
	session := account.Name + "." + account.Namespace + "." + at.region + ".fluxcd.io" // as the reference has it
	keys, err := assumeWithToken(ctx, c, account.Annotations[roleAnnotation], session[:min(len(session), 64)], token)
	if err != nil {
		err = p.explain(ctx, "assume the role of service account "+account.Namespace+"/"+account.Name, err, account, token)
	}
	return keys, err
}

// withClient sends every request of the SDK through client, as the last step of the middleware
// stack. The SDK does not use the client of its configuration for the credentials of
// containers, and rejects it together with AWS_CA_BUNDLE.
func withClient(client *http.Client) func(*middleware.Stack) error {
	sender := smithyhttp.NewClientHandlerWithOptions(client)
	return func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("headgate",
			func(ctx context.Context, in middleware.DeserializeInput, _ middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				resp, metadata, err := sender.Handle(ctx, in.Request)
				return middleware.DeserializeOutput{RawResponse: resp}, metadata, err
			}), middleware.After)
	}
}

// withTokenService makes the SDK use host as the token service. Other services keep their
// endpoints.
func withTokenService(host string) func(*middleware.Stack) error {
	const before = "ResolveEndpointV2"
	return func(stack *middleware.Stack) error {
		if _, found := stack.Finalize.Get(before); !found {
			return nil
		}
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("headgateIssuer",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				if req, ok := in.Request.(*smithyhttp.Request); ok && awsmiddleware.GetServiceID(ctx) == sts.ServiceID {
					req.URL.Scheme, req.URL.Host = "https", host
				}
				return next.HandleFinalize(ctx, in)
			}), before, middleware.After)
	}
}

// inJob reports whether the identity is a role that a job of Actions assumes.
func (p *Provider) inJob() bool {
	return p.hasRole() && !p.env().Has("AWS_WEB_IDENTITY_TOKEN_FILE")
}

// hasRole reports whether the identity is AWS_ROLE_ARN, assumed with an identity token.
func (p *Provider) hasRole() bool {
	return p.env().Has("AWS_ROLE_ARN") && !p.env().Has("AWS_ACCESS_KEY_ID") && !p.env().Has("AWS_PROFILE") &&
		(p.env().Has("AWS_WEB_IDENTITY_TOKEN_FILE") || p.env().Has(exchange.JobVariables...))
}

// checkPartition returns an error if the role of an account, or of this program, must not be
// assumed in region, because the token service there would receive an identity token that
// is valid elsewhere.
func (p *Provider) checkPartition(region string, account *source.Account) error {
	cloud := partitionOf(region).name
	if account != nil {
		role, err := exchange.Annotation(account, roleAnnotation, true, roleForm, "the ARN of the role that the account is to assume, as arn:aws:iam::ACCOUNT:role/NAME")
		if err == nil && !strings.HasPrefix(role, "arn:"+cloud+":") {
			err = fmt.Errorf("%w: annotation %s is not a role of %s, the partition that region %s is in: set it to a role there", source.ErrProvider, roleAnnotation, cloud, region)
		}
		if err != nil {
			err = fmt.Errorf("service account %s/%s: %w", account.Namespace, account.Name, err)
		}
		return err
	}
	if p.hasRole() && !strings.HasPrefix(p.env().Value("AWS_ROLE_ARN"), "arn:"+cloud+":") {
		return fmt.Errorf("%w: AWS_ROLE_ARN is not a role of %s, the partition that region %s is in: set it to a role there",
			source.ErrProvider, cloud, region)
	}
	return nil
}

// An identityToken supplies a token that was issued already.
type identityToken string

// GetIdentityToken implements [stscreds.IdentityTokenRetriever].
func (t identityToken) GetIdentityToken() ([]byte, error) { return []byte(t), nil }

// explain turns an error of the SDK into an error of one line. what names the operation
// that failed. The error contains neither secrets nor the secret values of the environment.
func (p *Provider) explain(ctx context.Context, what string, err error, account *source.Account, secrets ...string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	for _, name := range []string{"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		secrets = append(secrets, p.env().Value(name))
	}
	hint := exchange.Advice(account, "AWS")
	if api, ok := errors.AsType[smithy.APIError](err); ok && isFinal(api, err) {
		return fmt.Errorf("%w: %s: %s: %s", source.ErrProvider, exchange.CleanText(api.ErrorCode()), exchange.CleanText(api.ErrorMessage(), secrets...), hint)
	}
	return fmt.Errorf("%s: %s: %s", what, exchange.CleanText(err.Error(), secrets...), hint)
}

// isFinal reports whether a service will give the same answer again: it did not throttle
// the request, and the failure is not its own.
func isFinal(api smithy.APIError, err error) bool {
	if _, often := retry.DefaultThrottleErrorCodes[api.ErrorCode()]; often {
		return false
	}
	if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return exchange.Final(resp.HTTPStatusCode())
	}
	return api.ErrorFault() == smithy.FaultClient
}

// The services of AWS that a Provider can log in to.
const (
	codeCommit     = "codecommit"
	registry       = "ecr"
	publicRegistry = "ecr-public"
	buckets        = "s3"
)

// An endpoint is a service of AWS in a region.
type endpoint struct {
	service string
	region  string
	fips    bool   // use the endpoint for validated cryptography (FIPS)
	dual    bool   // use the endpoint for IPv6 and IPv4
	issuer  string // host of the token service for the keys, "" for that of the region
}

const regionForm = `([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})`

// hosts are the patterns of the services' hosts, anchored at both ends. The submatches are
// -fips, the region, and the domain of its partition.
var hosts = []struct {
	scheme, service string
	dual            bool
	form            *regexp.Regexp
}{
	{"https", codeCommit, false, regexp.MustCompile(`^git-codecommit(-fips)?\.` + regionForm + `\.(amazonaws\.com(?:\.cn)?)$`)},
	{"oci", registry, false, regexp.MustCompile(`^[0-9]{12}\.dkr\.ecr(-fips)?\.` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"oci", registry, true, regexp.MustCompile(`^[0-9]{12}\.dkr-ecr(-fips)?\.` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"s3", buckets, false, regexp.MustCompile(`^s3(-fips)?\.(?:dualstack\.)?` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"s3", buckets, false, regexp.MustCompile(`^s3()-` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"s3", buckets, false, regexp.MustCompile(`^bucket\.vpce-[0-9a-z-]+\.s3()\.` + regionForm + `\.vpce\.([a-z0-9.-]+)$`)},
}

// issuers are the patterns of the hosts of token services, with the same submatches as
// hosts.
var issuers = []*regexp.Regexp{
	regexp.MustCompile(`^sts(-fips)?\.` + regionForm + `\.([a-z0-9.-]+)$`),
	regexp.MustCompile(`^vpce-[0-9a-z-]+\.sts(-fips)?\.` + regionForm + `\.vpce\.([a-z0-9.-]+)$`),
}

// A partition is a separate cloud of AWS.
type partition struct{ region, name, domain, dual string }

// partitions lists the partitions of AWS, by the prefix of their region names: their name
// in ARNs, and the domains of their services. The first match counts; the last entry is the
// public partition.
var partitions = []partition{
	{"cn-", "aws-cn", "amazonaws.com.cn", "on.amazonwebservices.com.cn"},
	{"us-gov-", "aws-us-gov", "amazonaws.com", "on.aws"},
	{"eusc-", "aws-eusc", "amazonaws.eu", ""},
	{"us-iso-", "aws-iso", "c2s.ic.gov", ""},
	{"us-isob-", "aws-iso-b", "sc2s.sgov.gov", ""},
	{"us-isof-", "aws-iso-f", "csp.hci.ic.gov", ""},
	{"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", ""},
	{"", "aws", "amazonaws.com", "on.aws"},
}

// globalEndpoints are the endpoints whose names contain no region, by scheme and host.
var globalEndpoints = map[[2]string]endpoint{
	{"oci", "public.ecr.aws"}:     {service: publicRegistry, region: "us-east-1"},
	{"oci", "ecr-public.aws.com"}: {service: publicRegistry, region: "us-east-1", dual: true},
	{"s3", "s3.amazonaws.com"}:    {service: buckets, region: "us-east-1"},
}

var (
	errNoEndpoint = errors.New("provider aws is for https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME, " +
		"oci://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME and oci://public.ecr.aws/NAME")
	errNoBuckets = errors.New("the identity of this program is for s3.REGION.amazonaws.com and its like alone: " +
		"for another server set spec.secretRef to a Secret with accesskey and secretkey, or spec.provider to generic to send none")
	errNoIssuer = errors.New("the token service, spec.sts.endpoint, must be https://sts.REGION.amazonaws.com or its like in the same partition: it is shown the identity of this program")
)

// endpointOf returns the endpoint at u. The query of a bucket's URL may name a token service: sts=URL.
func endpointOf(u *url.URL) (endpoint, error) {
	at, err := serviceOf(u)
	if err != nil || at.service != buckets {
		return at, err
	}
	if issuer := u.Query().Get("sts"); issuer != "" {
		err = at.setIssuer(issuer)
	}
	return at, err
}

// setIssuer sets the token service for the bucket at to the URL issuer.
func (at *endpoint) setIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return errNoIssuer
	}
	host, region := exchange.Host(u), ""
	for _, form := range issuers {
		if m := form.FindStringSubmatch(host); m != nil && m[3] == partitionOf(m[2]).domain {
			region = m[2]
		}
	}
	if host == "sts.amazonaws.com" {
		region = "us-east-1"
	}
	if region == "" || partitionOf(region) != partitionOf(at.region) {
		return errNoIssuer
	}
	at.issuer, at.region = host, region
	return nil
}

// serviceOf returns the endpoint at u without its query.
func serviceOf(u *url.URL) (endpoint, error) {
	host := exchange.Host(u)
	if at, ok := globalEndpoints[[2]string{u.Scheme, host}]; ok {
		return at, nil
	}
	for _, h := range hosts {
		m := h.form.FindStringSubmatch(host)
		if m == nil || u.Scheme != h.scheme {
			continue
		}
		domain := partitionOf(m[2]).domain
		if h.dual {
			domain = partitionOf(m[2]).dual
		}
		if m[3] == domain {
			return endpoint{service: h.service, region: m[2], fips: m[1] != "", dual: h.dual}, nil
		}
	}
	if u.Scheme == "s3" {
		return endpoint{}, errNoBuckets
	}
	return endpoint{}, errNoEndpoint
}

// partitionOf returns the partition that region is in.
func partitionOf(region string) partition {
	i := slices.IndexFunc(partitions, func(p partition) bool { return strings.HasPrefix(region, p.region) })
	return partitions[i] // the last one matches every region
}
