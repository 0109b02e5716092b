#include "group/rank_record.hpp"

#include <strata/error.hpp>

#include <nlohmann/json.hpp>

namespace strata::runtime {

std::string Call::channel() const {
  return from < 0 ? group : group + " " + std::to_string(from) + ">" + std::to_string(to);
}

bool Call::agrees_with(const Call& other) const {
  if (from >= 0) return bytes == other.bytes;  // a send matches a receive
  return name == other.name && bytes == other.bytes && detail == other.detail;
}

std::string Call::text() const {
  return name + " #" + std::to_string(number) + " of " + std::to_string(bytes) + " bytes" +
         (detail.empty() ? "" : " (" + detail + ")") + " on group " + group;
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

namespace {

using Json = nlohmann::json;

Json to_json(const Call& call) {
  return {call.group, call.name, call.number, call.bytes, call.detail, call.from, call.to};
}

Call call_of(const Json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), json.at(5), json.at(6)};
}

}  // namespace

std::string to_text(const RankRecord& record) {
  Json begun = Json::array();
  for (const auto& [channel, calls] : record.begun)
    for (const Call& call : calls) begun.push_back(to_json(call));
  const Json json{{"process", {record.process.host, record.process.number, record.process.start}},
                  {"beat", record.beat},
                  {"moves", record.moves},
                  {"state", static_cast<int>(record.state)},
                  {"doing", record.doing},
                  {"since_s", record.since_s},
                  {"waits_for", to_json(record.waits_for)},
                  {"needs", record.needs},
                  {"begun", std::move(begun)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankRecord parse_record(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    RankRecord record;
    const Json& process = json.at("process");
    record.process = {process.at(0), process.at(1), process.at(2)};
    record.beat = json.at("beat");
    record.moves = json.at("moves");
    record.state = static_cast<RankState>(json.at("state").get<int>());
    record.doing = json.at("doing");
    record.since_s = json.at("since_s");
    record.waits_for = call_of(json.at("waits_for"));
    record.needs = json.at("needs").get<std::vector<int>>();
    for (const Json& call : json.at("begun")) record.begin(call_of(call));
    return record;
  } catch (const Json::exception& error) {
    throw Bug("a rank's record on the board cannot be read: " + std::string(error.what()));
  }
}

}  // namespace strata::runtime
