#include "group/rank_record.hpp"

#include <strata/error.hpp>

#include <nlohmann/json.hpp>

#include "text/json.hpp"

namespace strata::group {

std::string Call::channel() const {
  return from < 0 ? group : group + " " + std::to_string(from) + ">" + std::to_string(to);
}

bool Call::agrees_with(const Call& other) const {
  if (from >= 0) return bytes == other.bytes;  // a send matches a receive
  return name == other.name && bytes == other.bytes && detail == other.detail;
}

std::string Call::text() const {
  return format("{} #{} of {} bytes{} on group {}", name, number, bytes, detail.empty() ? "" : " (" + detail + ")",
                group);
}

void RankRecord::begin(const Call& call) {
  std::deque<Call>& calls = begun[call.channel()];
  calls.push_back(call);
  if (calls.size() > calls_kept) calls.pop_front();
}

std::int64_t RankRecord::last_number(const std::string& channel) const {
  const auto found = begun.find(channel);
  return found == begun.end() || found->second.empty() ? 0 : found->second.back().number;
}

using Json = nlohmann::json;

// A list, without names: a record holds many calls.
void to_json(Json& json, const Call& call) {
  json = {call.group, call.name, call.number, call.bytes, call.detail, call.from, call.to};
}
void from_json(const Json& json, Call& call) {
  call = {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), json.at(5), json.at(6)};
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessIdentity, host, number, start)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankRecord, process, beat, moves, state, doing, since_s, waits_for, needs, on_device,
                                   begun)

std::string to_text(const RankRecord& record) {
  return Json(record).dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankRecord parse_record(const std::string& text) {
  constexpr text::JsonLimits limits{std::size_t{1} << 24, std::size_t{1} << 20};
  try {
    return text::JsonDocument(text, {"a rank's record on the board"}, limits).json().get<RankRecord>();
  } catch (const Json::exception&) {
    throw EnvironmentError("a rank's record on the board is invalid; another program may use this run's store");
  }
}

}  // namespace strata::group
