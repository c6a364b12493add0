/* The words of the generated documents: see doc_writer.h. */
#include "data/doc_writer.h"

#include <assert.h>

static const char *const adjectives[] = {
    "able",    "amber",  "ancient", "angry",  "autumn", "bitter",  "black",  "blank",   "blue",
    "bold",    "brass",  "brave",   "bright", "broad",  "broken",  "brown",  "busy",    "calm",
    "careful", "cheap",  "clean",   "clever", "cold",   "common",  "cosy",   "crimson", "crisp",
    "curious", "curved", "damp",    "daring", "dark",   "deep",    "dim",    "distant", "double",
    "dry",     "dull",   "dusty",   "eager",  "early",  "easy",    "empty",  "even",    "faint",
    "fair",    "famous", "fancy",   "fast",   "fierce", "final",   "fine",   "firm",    "flat",
    "fond",    "formal", "fresh",   "full",   "gentle", "giant",   "glad",   "golden",  "grand",
    "grave",   "great",  "green",   "grey",   "happy",  "hard",    "harsh",  "heavy",   "hidden",
    "high",    "hollow", "honest",  "hot",    "huge",   "humble",  "idle",   "iron",    "jolly",
    "keen",    "kind",   "large",   "late",   "lazy",   "light",   "little", "lively",  "lonely",
    "long",    "loud",   "loyal",   "lucky",  "mellow", "merry",   "mild",   "modern",  "narrow",
    "neat",    "new",    "noble",   "noisy",  "odd",    "old",     "open",   "orange",  "pale",
    "patient", "plain",  "polite",  "proud",  "pure",   "purple",  "quick",  "quiet",   "rapid",
    "rare",    "raw",    "ready",   "red",    "rich",   "ripe",    "rough",  "round",   "royal",
    "rusty",   "sad",    "salty",   "secret", "sharp",  "shiny",   "short",  "shy",     "silent",
    "silver",  "simple", "sleepy",  "slow",   "small",  "smart",   "smooth", "soft",    "solid",
    "sour",    "spare",  "steady",  "steep",  "stiff",  "strange", "strict", "strong",  "sudden",
    "sunny",   "sweet",  "swift",   "tall",   "tame",   "tender",  "thick",  "thin",    "tidy",
    "tiny",    "tired",  "torpid",  "tough",  "true",   "vague",   "vast",   "warm",    "weak",
    "wet",     "white",  "wide",    "wild",   "wise",   "witty",   "wooden", "yellow",  "young"};

static const char *const first_names[] = {
    "Ada",    "Alma",   "Amir",  "Anna",   "Anton", "Arne",  "Asta",   "Bela",  "Bruno", "Carla",
    "Celia",  "Clara",  "Dario", "David",  "Dora",  "Edgar", "Elena",  "Elias", "Emil",  "Erika",
    "Farid",  "Felix",  "Flora", "Frida",  "Georg", "Greta", "Hanna",  "Hugo",  "Ida",   "Igor",
    "Irene",  "Ivan",   "Jakob", "Jana",   "Jonas", "Julia", "Karim",  "Karl",  "Klara", "Lars",
    "Lea",    "Leila",  "Leon",  "Lina",   "Louis", "Lucia", "Marco",  "Maria", "Mark",  "Marta",
    "Max",    "Mira",   "Nadia", "Nils",   "Nina",  "Nora",  "Olga",   "Oscar", "Otto",  "Paul",
    "Petra",  "Rafael", "Rita",  "Robert", "Rosa",  "Ruth",  "Sami",   "Sara",  "Simon", "Sofia",
    "Stella", "Tara",   "Theo",  "Tilda",  "Tom",   "Vera",  "Victor", "Yara",  "Yusuf", "Zora"};

static const char *const last_names[] = {
    "Abel",    "Adler",   "Ahlberg", "Amado",  "Bach",   "Baker", "Barros", "Becker", "Berg",
    "Blake",   "Brandt",  "Brown",   "Carver", "Castro", "Cole",  "Cooper", "Costa",  "Dahl",
    "Diaz",    "Dorn",    "Drake",   "Duarte", "Eder",   "Ekman", "Ellis",  "Falk",   "Farmer",
    "Fischer", "Ford",    "Fox",     "Frank",  "Garcia", "Grant", "Gray",   "Haas",   "Hall",
    "Hansen",  "Hart",    "Hill",    "Holt",   "Horn",   "Hunt",  "Ivanov", "Jansen", "Jung",
    "Kaya",    "Keller",  "King",    "Klein",  "Koch",   "Kovac", "Kuhn",   "Lang",   "Larsen",
    "Lind",    "Lopez",   "Lund",    "Marsh",  "Mason",  "Meyer", "Miller", "Moore",  "Moreau",
    "Nagy",    "Nolan",   "Novak",   "Olsen",  "Parker", "Perez", "Porter", "Quist",  "Reed",
    "Reyes",   "Richter", "Rivera",  "Rossi",  "Roth",   "Sato",  "Silva",  "Stone",  "Strand",
    "Tanner",  "Torres",  "Turner",  "Urban",  "Vega",   "Vogel", "Wagner", "Weber",  "Winter",
    "Wolf",    "Wood",    "Wright",  "York",   "Young",  "Zeller"};

static const char *const cities[] = {
    "Accra",  "Athens",  "Austin",  "Bergen",  "Berlin", "Bern",     "Bilbao",  "Boston", "Bremen",
    "Cairo",  "Chicago", "Cork",    "Dakar",   "Dallas", "Denver",   "Dublin",  "Geneva", "Genoa",
    "Ghent",  "Graz",    "Hamburg", "Hanoi",   "Havana", "Helsinki", "Kyoto",   "Lagos",  "Leeds",
    "Lima",   "Lisbon",  "London",  "Lyon",    "Madrid", "Malmo",    "Milan",   "Munich", "Nairobi",
    "Naples", "Oslo",    "Ottawa",  "Paris",   "Porto",  "Prague",   "Quito",   "Riga",   "Rome",
    "Seoul",  "Sofia",   "Split",   "Tallinn", "Tokyo",  "Toronto",  "Trieste", "Tunis",  "Turin",
    "Vienna", "Vilnius", "Warsaw",  "York",    "Zagreb", "Zurich"};

static const char *const trades[] = {
    "Airways",   "Bank",     "Books",    "Bricks",    "Cables", "Cement",   "Clothing",  "Coffee",
    "Dairy",     "Energy",   "Foods",    "Furniture", "Glass",  "Hotels",   "Insurance", "Labs",
    "Logistics", "Machines", "Media",    "Metals",    "Mills",  "Motors",   "Optics",    "Paper",
    "Pharma",    "Railways", "Shipping", "Software",  "Steel",  "Textiles", "Timber",    "Toys"};

static const char *const services[] = {
    "api",     "auth",    "backup", "billing", "cache",  "catalog", "chat",    "config",
    "export",  "gateway", "import", "index",   "ingest", "ledger",  "mail",    "media",
    "metrics", "orders",  "parser", "queue",   "report", "router",  "search",  "session",
    "stock",   "storage", "sync",   "upload",  "users",  "web",     "webhook", "worker"};

static const char *const onsets[] = {"b",  "bl", "br", "d",  "dr", "f", "fl", "g", "gl", "gr",
                                     "h",  "j",  "k",  "kl", "kr", "l", "m",  "n", "p",  "pl",
                                     "pr", "r",  "s",  "sk", "st", "t", "tr", "v", "w",  "z"};
static const char *const rimes[] = {"a",  "e",  "i",  "o",  "u",  "al", "am", "an", "ar", "as",
                                    "el", "en", "er", "ik", "il", "im", "in", "is", "ol", "om",
                                    "on", "or", "os", "ul", "um", "un", "ur", "us", "ap", "ot"};

static const char *const animals[] = {
    "badger", "bat",    "bear",   "beaver", "bee",    "beetle",  "bison",  "camel",    "cat",
    "cow",    "crab",   "crane",  "crow",   "deer",   "dog",     "donkey", "dove",     "duck",
    "eagle",  "falcon", "ferret", "fox",    "frog",   "goat",    "goose",  "hamster",  "hare",
    "hawk",   "hen",    "heron",  "horse",  "jackal", "kid",     "lamb",   "lion",     "lizard",
    "lynx",   "mole",   "monkey", "moose",  "moth",   "mouse",   "otter",  "owl",      "ox",
    "panda",  "parrot", "pig",    "pigeon", "rabbit", "rat",     "raven",  "robin",    "salmon",
    "seal",   "shark",  "sheep",  "snail",  "snake",  "sparrow", "spider", "squirrel", "stork",
    "swan",   "tiger",  "toad",   "trout",  "turtle", "whale",   "wolf"};
static const char *const foods[] = {
    "apple",  "bacon",   "banana",  "bean",    "bread",  "broth",  "butter",   "cabbage", "cake",
    "carrot", "celery",  "cheese",  "cherry",  "cookie", "cream",  "cucumber", "curry",   "egg",
    "fig",    "garlic",  "ginger",  "grape",   "ham",    "honey",  "jam",      "kale",    "leek",
    "lemon",  "lentil",  "lime",    "mango",   "melon",  "milk",   "mustard",  "noodle",  "nut",
    "olive",  "onion",   "pancake", "pasta",   "peach",  "pear",   "pepper",   "pie",     "pizza",
    "plum",   "potato",  "pudding", "pumpkin", "radish", "raisin", "rice",     "salad",   "salt",
    "sauce",  "sausage", "soup",    "spinach", "steak",  "stew",   "sugar",    "toast",   "tomato",
    "turnip", "vinegar", "waffle",  "walnut",  "yogurt"};
static const char *const tools[] = {
    "anvil",   "axe",      "bellows", "blade", "bolt",    "broom", "brush",   "bucket",   "chisel",
    "clamp",   "compass",  "crowbar", "drill", "file",    "fork",  "funnel",  "gauge",    "glue",
    "grinder", "hammer",   "hoe",     "hook",  "hose",    "jack",  "knife",   "ladder",   "lathe",
    "lever",   "mallet",   "needle",  "nail",  "paddle",  "pan",   "pencil",  "pick",     "pliers",
    "plough",  "pump",     "rake",    "razor", "rope",    "ruler", "saw",     "scissors", "screw",
    "shovel",  "sickle",   "sieve",   "spade", "spanner", "spoon", "stapler", "tongs",    "torch",
    "trowel",  "tweezers", "vice",    "wedge", "whisk",   "wrench"};
static const char *const clothes[] = {
    "apron",   "belt",  "beret",    "blazer",  "blouse",    "bonnet",   "boot",   "bow",
    "cap",     "cape",  "cardigan", "cloak",   "coat",      "collar",   "cuff",   "dress",
    "fedora",  "glove", "gown",     "hat",     "helmet",    "hood",     "jacket", "jeans",
    "jersey",  "kilt",  "mitten",   "pyjamas", "pocket",    "robe",     "sandal", "sari",
    "scarf",   "shawl", "shirt",    "shoe",    "shorts",    "skirt",    "sleeve", "slipper",
    "sock",    "suit",  "sweater",  "tie",     "tights",    "trousers", "tunic",  "turban",
    "uniform", "veil",  "vest",     "visor",   "waistcoat", "wig"};
static const char *const vehicles[] = {
    "airship", "ambulance", "barge",      "bicycle", "boat",    "bus",       "canoe",
    "car",     "caravan",   "cart",       "coach",   "digger",  "dinghy",    "ferry",
    "frigate", "glider",    "hovercraft", "jeep",    "jet",     "kayak",     "limousine",
    "lorry",   "moped",     "motorbike",  "plane",   "raft",    "rickshaw",  "rocket",
    "scooter", "ship",      "skateboard", "sledge",  "steamer", "submarine", "tank",
    "taxi",    "tractor",   "trailer",    "train",   "tram",    "tricycle",  "trolley",
    "truck",   "tug",       "van",        "wagon",   "yacht",   "zeppelin"};
static const char *const instruments[] = {
    "accordion", "bagpipe",  "banjo",     "bassoon",   "bell",  "bugle",      "cello",
    "chime",     "clarinet", "cornet",    "cymbal",    "drum",  "fiddle",     "flute",
    "gong",      "guitar",   "harmonica", "harp",      "horn",  "keyboard",   "lute",
    "lyre",      "mandolin", "maraca",    "oboe",      "organ", "panpipe",    "piano",
    "piccolo",   "recorder", "rattle",    "saxophone", "sitar", "tambourine", "triangle",
    "trombone",  "trumpet",  "tuba",      "ukulele",   "viola", "violin",     "whistle",
    "xylophone", "zither"};
static const char *const plants[] = {
    "alder",     "ash",     "aspen",   "bamboo",   "beech",    "birch",  "bramble", "cactus",
    "cedar",     "clover",  "cypress", "daisy",    "elder",    "elm",    "fern",    "fir",
    "gorse",     "hazel",   "heather", "holly",    "hyacinth", "iris",   "ivy",     "jasmine",
    "juniper",   "larch",   "laurel",  "lavender", "lilac",    "lily",   "linden",  "lotus",
    "magnolia",  "maple",   "moss",    "myrtle",   "nettle",   "oak",    "orchid",  "palm",
    "pansy",     "pine",    "poppy",   "primrose", "reed",     "rose",   "sage",    "spruce",
    "sunflower", "thistle", "thyme",   "tulip",    "violet",   "willow", "yew"};
static const char *const places[] = {
    "abbey",     "airport", "arena",   "attic",   "bakery",     "bank",   "barn",     "beach",
    "bridge",    "cabin",   "cafe",    "canal",   "castle",     "cave",   "cellar",   "chapel",
    "church",    "cinema",  "cottage", "court",   "desert",     "dock",   "factory",  "farm",
    "forest",    "fort",    "garage",  "garden",  "harbour",    "hill",   "hospital", "hotel",
    "island",    "kitchen", "lake",    "library", "lighthouse", "market", "meadow",   "mill",
    "mine",      "museum",  "office",  "orchard", "palace",     "park",   "pier",     "port",
    "prison",    "quarry",  "river",   "school",  "shop",       "square", "stable",   "stadium",
    "station",   "studio",  "temple",  "theatre", "tower",      "tunnel", "valley",   "village",
    "warehouse", "workshop"};

typedef struct word_row {
    const char *const *at;
    size_t n;
} word_row;

#define ROW(list)                                                                                  \
    {                                                                                              \
        list, sizeof(list) / sizeof(list)[0]                                                       \
    }

static const word_row rows[SKV_WORDS_COUNT] = {
    [SKV_WORDS_ADJECTIVES] = ROW(adjectives), [SKV_WORDS_FIRST_NAMES] = ROW(first_names),
    [SKV_WORDS_LAST_NAMES] = ROW(last_names), [SKV_WORDS_CITIES] = ROW(cities),
    [SKV_WORDS_TRADES] = ROW(trades),         [SKV_WORDS_SERVICES] = ROW(services),
    [SKV_WORDS_ONSETS] = ROW(onsets),         [SKV_WORDS_RIMES] = ROW(rimes),
    [SKV_WORDS_ANIMALS] = ROW(animals),       [SKV_WORDS_FOODS] = ROW(foods),
    [SKV_WORDS_TOOLS] = ROW(tools),           [SKV_WORDS_CLOTHES] = ROW(clothes),
    [SKV_WORDS_VEHICLES] = ROW(vehicles),     [SKV_WORDS_INSTRUMENTS] = ROW(instruments),
    [SKV_WORDS_PLANTS] = ROW(plants),         [SKV_WORDS_PLACES] = ROW(places)};

size_t skv_words_size(skv_word_list list)
{
    assert(list < SKV_WORDS_COUNT);
    return rows[list].n;
}

const char *skv_word_at(skv_word_list list, size_t i)
{
    assert(list < SKV_WORDS_COUNT && i < rows[list].n);
    return rows[list].at[i];
}
