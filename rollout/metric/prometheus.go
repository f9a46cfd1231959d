package metric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// promQL asks a Prometheus for the value of an expression now.
func (q *Querier) promQL(ctx context.Context, e endpoint, text string) (float64, error) {
	base, err := parseAddress(e.Address)
	if err != nil {
		return 0, fmt.Errorf("the address %w", err)
	}
	u := base.JoinPath("api", "v1", "query")
	query := u.Query()
	query.Set("query", strings.TrimSpace(text))
	u.RawQuery = query.Encode()
	a, err := q.fetch(ctx, e, u)
	if err != nil {
		return 0, err
	}
	if a.status < 200 || a.status > 299 {
		return 0, fmt.Errorf("status %d: %s", a.status, a.complaint())
	}
	value, err := decodeResult(a.body)
	if errors.Is(err, errNotJSON) {
		return 0, fmt.Errorf("answered %s: is it Prometheus?", shown(strconv.Quote(a.contentType), a.secrets))
	}
	return value, a.quiet(err)
}

// complaint returns what the server says is wrong, for an error.
func (a answer) complaint() string {
	var r result
	if json.Unmarshal(a.body, &r) == nil && r.Error != "" {
		return shown(r.complaint(), a.secrets)
	}
	if len(a.body) == 0 {
		return http.StatusText(a.status)
	}
	return shown(string(a.body), a.secrets)
}

// A result is the answer of Prometheus to a query.
type result struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// complaint returns the error that a result tells.
func (r result) complaint() string {
	if r.ErrorType == "" {
		return r.Error
	}
	return r.ErrorType + ": " + r.Error
}

var errNotJSON = errors.New("the answer is no JSON object")

// decodeResult returns the value in an answer of Prometheus.
func decodeResult(body []byte) (float64, error) {
	var r result
	if err := json.Unmarshal(body, &r); err != nil {
		return 0, errNotJSON
	}
	switch {
	case r.Status == "error":
		return 0, errors.New(r.complaint())
	case r.Status != "success":
		return 0, errNotJSON
	}
	switch r.Data.ResultType {
	case "scalar":
		return decodeSample(r.Data.Result)
	case "vector":
		return decodeVector(r.Data.Result)
	case "matrix":
		return 0, errors.New("the query gives a range of values: aggregate it, as with rate or max_over_time")
	case "string":
		return 0, errors.New("the query gives a string, not a number")
	}
	return 0, errors.New("the answer has no result: is it Prometheus?")
}

// decodeVector returns the value of the last sample.
func decodeVector(text []byte) (float64, error) {
	var samples []struct {
		Value     json.RawMessage `json:"value"`
		Histogram json.RawMessage `json:"histogram"`
	}
	if err := json.Unmarshal(text, &samples); err != nil {
		return 0, errors.New("the answer has a vector that is none")
	}
	if len(samples) == 0 {
		return 0, noValue("answered an empty vector")
	}
	last := samples[len(samples)-1]
	if last.Value == nil && last.Histogram != nil {
		return 0, errors.New("the query gives a histogram: take a number of it, as with histogram_quantile")
	}
	return decodeSample(last.Value)
}

// decodeSample returns the value of a pair of time and value.
func decodeSample(text []byte) (float64, error) {
	var pair []json.RawMessage
	var value string
	if json.Unmarshal(text, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &value) != nil {
		return 0, errors.New("the answer has a sample that is no pair of time and value")
	}
	return parseNumber(value)
}

// parseNumber reads a number as Prometheus, JSON documents and commands write it.
func parseNumber(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is no number", shown(strconv.Quote(text), nil))
	case math.IsNaN(f):
		return 0, noValue("answered NaN")
	}
	return f, nil
}
